"""What the surrogates predict, on grids to draw.

Notation: ``d`` axes of the surrogates, ``n`` points of the front, ``g`` nodes, ``m``
tasks. Predictions are rounded: a picture shows no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from mergekit_map.errors import ArtifactError
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.selection import spread

Kind: TypeAlias = Literal["curve", "contour", "slices", "none"]
_NODES = {"curve": 101, "contour": 41, "slices": 25}  # along an axis
_DIGITS = 5  # significant ones
# Of slices, so that a page stays one that can be mailed: those of 450 points, 5 tasks
# and 15 coefficients; and what a front that was found has at most.
_MOST_VALUES, _MOST_POINTS = 1_000_000, 450


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Predictions along one axis, over two, or along each of more; or none at all.

    Of a task, a curve is (g,), a contour (g, g) with the second axis first, and slices
    are (s, d, g): through each point of the front, along each axis; where these would
    be too many, through some that show all of it.
    """

    kind: Kind
    axes: tuple[str, ...]
    nodes: FloatArray  # (d, g)
    points: FloatArray  # (n, d) of the front
    value: FloatArray  # (m, ...)
    stderr: FloatArray  # (m, ...)
    through: tuple[int, ...] = ()  # (s,) points of the front that slices go through

    def slice_of(self, index: int) -> int:
        """Find the slices of a point, or of the nearest that has some."""
        if index in self.through:
            return self.through.index(index)
        apart = self.points[list(self.through)] - self.points[index]
        return int(np.square(apart).sum(axis=1).argmin())


def predict_surfaces(run: FinishedSearch) -> Surfaces:
    """Predict every task on a grid, or on slices where there are more than two axes.

    Of a search that has no surrogates yet there is nothing to draw.

    Raises:
        ArtifactError: a surrogate predicts no finite numbers.
    """
    d = len(run.bounds)
    kind: Kind
    if not run.surrogates:
        nothing = np.zeros((0,))
        return Surfaces("none", run.axes, nothing, nothing, nothing, nothing)
    kind = "curve" if d == 1 else "contour" if d == 2 else "slices"
    lower, upper = run.bounds.T
    nodes = np.linspace(lower, upper, _NODES[kind], axis=1)
    points = run.locate(point.coefficients for point in run.front.points)
    through = _sliced_points(run, nodes.size) if kind == "slices" else ()
    grid = (
        np.stack(np.meshgrid(*nodes), axis=-1)
        if d < 3
        else _slices(points[list(through)], nodes)
    )
    X = grid.reshape(-1, d)
    surrogates = [run.surrogates[task] for task in run.front.tasks]
    value = np.array([s.predict(X) for s in surrogates])
    for task, row in zip(run.front.tasks, value, strict=True):
        if not np.isfinite(row).all():
            raise ArtifactError(
                f"{run.folder.surrogates}: the surrogate of {task} predicts no finite "
                "numbers; restore the file, or search again"
            )
    shape = (len(surrogates), *grid.shape[:-1])
    return Surfaces(
        kind=kind,
        axes=run.axes,
        nodes=_rounded(nodes),
        points=points,
        value=_rounded(value).reshape(shape),
        stderr=_rounded(np.array([s.stderr(X) for s in surrogates])).reshape(shape),
        through=through,
    )


def _sliced_points(run: FinishedSearch, size: int) -> tuple[int, ...]:
    """Choose the points that slices go through: all, or as many as fit."""
    front = run.front
    fitting = _MOST_VALUES // (size * len(front.tasks))
    room = min(max(fitting, 1), _MOST_POINTS)
    if room >= len(front.points):
        return tuple(range(len(front.points)))
    shown = spread(front.utilities(front.points, "predicted"), room)
    first = [front.selected, *front.recommended, *map(int, shown)]
    return tuple(sorted([*dict.fromkeys(first)][:room]))


def _slices(points: FloatArray, nodes: FloatArray) -> FloatArray:
    """Move each point (n, d) along each axis, over its nodes; (n, d, g, d)."""
    d, g = nodes.shape
    X = np.broadcast_to(points[:, None, None, :], (len(points), d, g, d)).copy()
    for axis in range(d):
        X[:, axis, :, axis] = nodes[axis]
    return X


def _rounded(grid: FloatArray) -> FloatArray:
    digits = [float(f"{v:.{_DIGITS}g}") for v in grid.ravel()]
    return np.array(digits).reshape(grid.shape)
