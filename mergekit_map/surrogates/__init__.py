"""Surrogates of one metric: quadratic, Gaussian process, links, error bars.

NumPy and SciPy only; nothing here knows what a model or a task is.
"""
