"""Files, text, signals and progress: what every package may use."""
