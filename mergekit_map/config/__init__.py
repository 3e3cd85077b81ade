"""The configuration file: its schema, its checks, and the line of every key."""
