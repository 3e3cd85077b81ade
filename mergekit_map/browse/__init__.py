"""The front of a search in the terminal: view, compare and choose points."""
