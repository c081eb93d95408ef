"""What is learned: the backbone, the process reward model, the distance and the residual."""
