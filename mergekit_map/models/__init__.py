"""Inspection of models, and whether they can be merged."""
