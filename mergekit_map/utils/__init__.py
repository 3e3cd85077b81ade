"""Files, text, signals and progress, for every package."""
