"""What the surrogates predict, on grids to draw, and where merges lie on them.

Notation: ``d`` axes of the surrogates, ``n`` points of the front, ``g`` nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mergekit_map.errors import ArtifactError
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.search.surrogate import Surrogate

FloatArray = NDArray[np.float64]

_NODES = {"curve": 101, "contour": 41, "slices": 25}  # along an axis
# A merge whose weights are this near to those of a merge of groups is that merge.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Predictions along one axis, over two, or along each of more.

    A curve is (g,), a contour (g, g) with the second axis first, and slices are
    (n, d, g): through each point of the front, along each axis.
    """

    kind: Literal["curve", "contour", "slices"]
    axes: tuple[str, ...]
    nodes: FloatArray  # (d, g)
    value: Mapping[str, FloatArray]  # by task
    stderr: Mapping[str, FloatArray]


def predict_surfaces(run: FinishedSearch) -> Surfaces:
    """Predict every task on a grid, or on slices where there are more than two axes.

    Raises:
        ArtifactError: a surrogate predicts no finite numbers.
    """
    bounds = next(iter(run.surrogates.values())).bounds
    d = len(bounds)
    kind: Literal["curve", "contour", "slices"]
    kind = "curve" if d == 1 else "contour" if d == 2 else "slices"
    nodes = np.linspace(bounds[:, 0], bounds[:, 1], _NODES[kind], axis=1)
    if kind == "slices":
        points = locate(run, (p.coefficients for p in run.front.points))
        X = _slices(points, nodes)
    else:
        X = np.stack(np.meshgrid(*nodes), axis=-1)
    value = {task: _values(s, X) for task, s in run.surrogates.items()}
    for task, grid in value.items():
        if not np.isfinite(grid).all():
            raise ArtifactError(
                f"{run.folder.surrogates}: the surrogate of {task} predicts no finite "
                "numbers; restore the file, or search again"
            )
    return Surfaces(
        kind=kind,
        axes=run.axes,
        nodes=nodes,
        value=value,
        stderr={task: _errors(s, X) for task, s in run.surrogates.items()},
    )


def locate(run: FinishedSearch, merges: Iterable[Mapping[str, float]]) -> FloatArray:
    """Say merges, by coefficient, on the axes of the surrogates.

    Returns:
        (k, d), with a row of NaN for each merge where no surrogate was fitted.
    """
    names = list(run.front.coefficients)
    X = np.array([[merge[name] for name in names] for merge in merges], np.float64)
    X = X.reshape(-1, len(names))
    lower, upper = next(iter(run.surrogates.values())).bounds.T
    if not run.groups:
        inside = np.all((lower <= X) & (upper >= X), axis=1)
        return np.where(inside[:, None], X, np.nan)
    vectors = np.array([[g[n] for n in names] for g in run.groups.values()])
    rows: FloatArray = np.clip(X @ np.linalg.pinv(vectors), lower, upper)
    on_plane = np.all(np.abs(rows @ vectors - X) <= _ROUNDING, axis=1)
    return np.where(on_plane[:, None], rows, np.nan)


def _slices(points: FloatArray, nodes: FloatArray) -> FloatArray:
    """Move each point (n, d) along each axis, over its nodes; (n, d, g, d)."""
    d, g = nodes.shape
    X = np.broadcast_to(points[:, None, None, :], (len(points), d, g, d)).copy()
    for axis in range(d):
        X[:, axis, :, axis] = nodes[axis]
    return X


def _values(surrogate: Surrogate, X: FloatArray) -> FloatArray:
    return surrogate.predict(X.reshape(-1, X.shape[-1])).reshape(X.shape[:-1])


def _errors(surrogate: Surrogate, X: FloatArray) -> FloatArray:
    return surrogate.stderr(X.reshape(-1, X.shape[-1])).reshape(X.shape[:-1])
