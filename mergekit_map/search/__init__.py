"""The search: study, loop, strategies, budget; numbers and files, no torch."""
