"""Fits and fronts on one thread of BLAS: their matrices are small.

More threads wait for each other longer than they work, and round the last digits
otherwise, so that a front would depend on the machine's cores.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which is to be found
from threadpoolctl import ThreadpoolController

_BLAS = "blas"


def one_thread() -> AbstractContextManager[object]:
    """Let NumPy and SciPy multiply on one thread; torch has threads of its own."""
    limit: AbstractContextManager[object] = _libraries()[0].limit(
        limits=1, user_api=_BLAS
    )
    return limit


def all_threads() -> AbstractContextManager[object]:
    """Let them have what they had before, for what others compute."""
    controller, count = _libraries()
    limit: AbstractContextManager[object] = controller.limit(
        limits=count, user_api=_BLAS
    )
    return limit


@functools.cache
def _libraries() -> tuple[ThreadpoolController, int]:
    controller = ThreadpoolController()
    found = controller.select(user_api=_BLAS).info()
    counts = [library["num_threads"] for library in found]
    return controller, max(counts, default=1)
