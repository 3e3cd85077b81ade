"""Comparison of searches with opponents and baselines: the paper's tables."""
