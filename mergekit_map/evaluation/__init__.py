"""Evaluation of merges: in memory, on disk or in vLLM, measured by tasks."""
