"""Reading much that stays, without Python looking for cycles among it meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_later() -> Iterator[None]:
    """Look for cycles only afterwards.

    While 100,000 lines of a log become values, looking for cycles among them, of which
    there are none, takes as long as all else.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
