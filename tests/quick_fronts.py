"""Searches whose fronts have few points, where the front is not what is tested."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mergekit_map.search.front import compute_front


@contextmanager
def fronts_of_few_points(n_points: int = 10) -> Iterator[None]:
    """Find fronts of few points, which takes less long, and only meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mergekit_map.search.front.N_GENERATIONS", 5)
        few = functools.partial(compute_front, n_points=n_points)
        patch.setattr("mergekit_map.study.fitting.compute_front", few)
        yield
