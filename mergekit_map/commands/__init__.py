"""The commands, a module for each group that needs the same imports."""
