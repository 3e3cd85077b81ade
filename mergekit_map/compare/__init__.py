"""Searches held against opponents and baselines: one wing."""
