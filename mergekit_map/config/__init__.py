"""What a configuration says, every key with its line."""
