"""The commands: ``commands/NAME.py`` is the command NAME."""
