"""Where rooms meet: a module per step from YAML to checkpoint."""
