"""Searches that are quick where what takes their time is not what is tested."""

from __future__ import annotations

import base64
import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mergekit.common import ModelReference

from mergekit_map.optimize.nsga3 import N_GENERATIONS, N_SAMPLES, compute_front

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
def configurations_read_once() -> Iterator[None]:
    """Let mergekit read ``config.json`` once for each state of the file.

    It asks dozens of times per merge, which takes longer than to merge tiny models.
    """
    read, known = ModelReference.config, {}

    def config(self: ModelReference, trust_remote_code: bool = False) -> Any:
        file = Path(self.model.path, "config.json")
        if not file.is_file():  # of the Hub
            return read(self, trust_remote_code)
        state = file.stat()
        key = (self, trust_remote_code, state.st_mtime_ns, state.st_ino)
        if key not in known:
            known[key] = read(self, trust_remote_code)
        return copy.deepcopy(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelReference, "config", config)
        yield


@contextmanager
def _fronts(compute: object, n_generations: int, n_samples: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mergekit_map.optimize.nsga3.N_GENERATIONS", n_generations)
        patch.setattr("mergekit_map.optimize.nsga3.N_SAMPLES", n_samples)
        patch.setattr("mergekit_map.search.fitting.compute_front", compute)
        yield


@contextmanager
def _drawing(canvas: type) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mergekit_map.report.plots.FigureCanvasAgg", canvas)
        yield


class _Blank:
    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def print_png(self, file: BinaryIO) -> None:
        file.write(ONE_PIXEL)
