"""Coming from mergekit-evolve: its configuration read, and turned into one of ours."""
