"""Designs and fronts: which coefficients to measure, and which no other dominates."""
