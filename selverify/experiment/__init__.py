"""Methods on problems, the choice of settings, statistics, audits."""
