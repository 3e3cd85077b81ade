"""The demo's model family, trained from text that comes with every Python."""
