"""The commands; ``cli/main.py`` names the module of each."""
