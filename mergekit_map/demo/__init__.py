"""The model family that the demo trains itself, from text every Python carries."""
