"""Searches that are quick where what takes their time is not what is tested."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mergekit.common import ModelReference

from mergekit_map.optimize import nsga3

SIZES = ("N_POINTS_LINE", "N_POINTS_SURFACE", "N_GENERATIONS", "N_SAMPLES")
CANVAS = "mergekit_map.report.plots.FigureCanvasAgg"
# By a mark, what users get, within a suite that finds and draws quickly.
AS_FOR_USERS: dict[str, dict[str, Any]] = {
    "whole_front": {f"{nsga3.__name__}.{n}": vars(nsga3)[n] for n in SIZES},
    "picture": {CANVAS: FigureCanvasAgg},
}
ONE_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJ"
    "RU5ErkJggg=="
)


def fronts_of_few_points(n_points: int = 10) -> AbstractContextManager[None]:
    """Find fronts of few points, which takes less long, and only meanwhile."""
    values = (n_points, n_points, 5, 256)
    return _patched(dict(zip(AS_FOR_USERS["whole_front"], values, strict=True)))


def blank_pictures() -> AbstractContextManager[None]:
    """Write pictures of one pixel."""
    return _patched({CANVAS: _Blank})


def configurations_read_once() -> AbstractContextManager[None]:
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

    return _patched({"mergekit.common.ModelReference.config": config})


@contextmanager
def _patched(values: Mapping[str, object]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(name, value)
        yield


class _Blank:
    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def print_png(self, file: BinaryIO) -> None:
        file.write(ONE_PIXEL)
