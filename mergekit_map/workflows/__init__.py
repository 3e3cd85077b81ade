"""The Python API: one module for each step of the command line."""
