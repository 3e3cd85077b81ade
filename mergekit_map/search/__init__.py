"""The numbers of a search: designs, surrogates, fronts and what to pick from them.

NumPy, SciPy and pymoo only; nothing here knows what a model or a task is. Larger is
better everywhere in this package.
"""
