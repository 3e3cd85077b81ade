"""The report of a finished search: one HTML page and pictures."""
