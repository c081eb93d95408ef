"""Whole samples of a problem: which of them to score, and what that would have answered."""
