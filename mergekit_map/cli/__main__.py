"""The program, also as ``python -m mergekit_map.cli``."""

import runpy

runpy.run_module("mergekit_map", run_name="__main__")
