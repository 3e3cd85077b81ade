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

Kind: TypeAlias = Literal["curve", "contour", "slices", "none"]
_NODES = {"curve": 101, "contour": 41, "slices": 25}  # along an axis
_DIGITS = 5  # significant ones


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Predictions along one axis, over two, or along each of more; or none at all.

    Of a task, a curve is (g,), a contour (g, g) with the second axis first, and slices
    are (n, d, g): through each point of the front, along each axis.
    """

    kind: Kind
    axes: tuple[str, ...]
    nodes: FloatArray  # (d, g)
    points: FloatArray  # (n, d) of the front
    value: FloatArray  # (m, ...)
    stderr: FloatArray  # (m, ...)


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
    grid = np.stack(np.meshgrid(*nodes), axis=-1) if d < 3 else _slices(points, nodes)
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
    )


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
