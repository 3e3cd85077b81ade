"""The version, apart so that whoever only names it imports no more."""

__version__ = "0.1.0"
