"""The Python API: one module for each step that the command line has."""
