"""Modules of ``paper.py``: what each table and figure is made of."""
