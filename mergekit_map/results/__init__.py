"""The folder of a search as values: bytes become types here, and nowhere else."""
