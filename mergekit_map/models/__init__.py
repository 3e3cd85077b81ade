"""What models are, and whether they can be merged."""
