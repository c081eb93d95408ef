"""What answers requests: models, servers, recordings, and a deterministic fake."""
