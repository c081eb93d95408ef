"""The pre-verification score h = D_type + r_theta (paper, section 4.2); lower ranks first."""
