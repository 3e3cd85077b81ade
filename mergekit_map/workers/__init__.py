"""Processes and Ray actors that measure merges."""
