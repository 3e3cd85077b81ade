"""From coefficients to a number: a merge in memory or on disk, measured by tasks."""
