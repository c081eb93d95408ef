"""Generators, verifiers, heuristic, prompts, the reply cache."""
