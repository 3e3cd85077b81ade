"""Searches that are quick where neither the front nor its picture is what is tested."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mergekit_map.search.nsga import N_GENERATIONS, N_SAMPLES, compute_front

ONE_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJ"
    "RU5ErkJggg=="
)


@contextmanager
def fronts_of_few_points(n_points: int = 10) -> Iterator[None]:
    """Find fronts of few points, which takes less long, and only meanwhile."""
    few = functools.partial(compute_front, n_points=n_points)
    with _fronts(few, n_generations=5, n_samples=256):
        yield


@contextmanager
def whole_fronts() -> Iterator[None]:
    """Find the fronts that a user gets, within a suite that finds them quickly."""
    with _fronts(compute_front, N_GENERATIONS, N_SAMPLES):
        yield


@contextmanager
def blank_pictures() -> Iterator[None]:
    """Write pictures of one pixel."""
    with _drawing(_Blank):
        yield


@contextmanager
def drawn_pictures() -> Iterator[None]:
    """Draw pictures, within a suite that leaves them blank."""
    with _drawing(FigureCanvasAgg):
        yield


@contextmanager
def _fronts(compute: object, n_generations: int, n_samples: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mergekit_map.search.nsga.N_GENERATIONS", n_generations)
        patch.setattr("mergekit_map.search.nsga.N_SAMPLES", n_samples)
        patch.setattr("mergekit_map.study.fitting.compute_front", compute)
        yield


@contextmanager
def _drawing(canvas: type) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mergekit_map.publish.pictures.FigureCanvasAgg", canvas)
        yield


class _Blank:
    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def print_png(self, file: BinaryIO) -> None:
        file.write(ONE_PIXEL)
