"""Giving memory back to the operating system."""

from __future__ import annotations

import ctypes
import gc
import sys


def release_memory() -> None:
    """Collect cycles and return what the allocator holds free.

    glibc keeps freed blocks of up to 32 MB in its heap. After a merge these come to a
    good part of the model, scattered between the tensors that stay.
    """
    gc.collect()
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None)
        try:
            libc.malloc_trim(0)
        except AttributeError:
            return  # another C library, which has no such call
