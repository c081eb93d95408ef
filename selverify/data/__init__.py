"""Benchmarks, difficulty bins, grading."""
