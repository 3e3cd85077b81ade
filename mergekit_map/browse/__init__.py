"""The front of a search on the terminal: to walk along, compare and choose from."""
