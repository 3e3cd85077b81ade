"""What the forkserver imports: all that workers need, without a garbage collection.

Imports make no garbage, and forked workers need never visit what they made.
"""

import gc
import importlib

gc.disable()
importlib.import_module("mergekit_map.workers.worker_main")
gc.freeze()
gc.enable()
