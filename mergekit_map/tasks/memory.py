"""Memory freed by forward passes is kept for the next one.

glibc returns large blocks to the system at once and gets them back zeroed, page by
page. On a CPU that took a quarter of the time of a search of a small model.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

# The numbers of these parameters in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 28  # bytes free at the end of the heap
LARGEST = 1 << 25  # bytes of a block that is kept; glibc takes no more


def keep_freed_memory() -> None:
    """Make the allocator of this process keep freed memory; others do already."""
    if sys.platform.startswith("linux"):
        with suppress(AttributeError):  # another C library, which has no such call
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_MMAP_THRESHOLD, LARGEST)
            mallopt(_TRIM_THRESHOLD, _KEPT)
