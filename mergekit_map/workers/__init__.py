"""Pools of worker processes and Ray actors that measure merges."""
