"""Recorded runs: what logs of a model say that selective verification would have saved."""
