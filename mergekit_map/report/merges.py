"""The measured merges of a report, the grids of its surrogates and its item counts.

Items are counted and numbered; their text is left out, so that a report may be shared.

Notation: ``d`` axes of the surrogates, ``n`` points of the front, ``g`` nodes, ``m``
tasks. Predictions are rounded, as a picture shows no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from mergekit_map.errors import ArtifactError
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import UNKNOWN, Front, Merge, Reading
from mergekit_map.results.log import (
    ASSESSING,
    Evaluation,
    Key,
    Role,
    by_merge,
    evaluation_key,
    merge_key,
)
from mergekit_map.results.samples import (
    NO_ITEMS,
    Items,
    read_items,
    read_sample_file,
    won_items,
)
from mergekit_map.results.surrogate_file import predict
from mergekit_map.surrogates.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class MeasuredMerge:
    """A measured merge; tuples go by task unless noted otherwise."""

    label: str | None  # of a reference point, or of a corner of the method
    point: int | None = None  # of the front
    roles: tuple[Role, ...]  # why it was measured
    coefficients: tuple[float | None, ...]
    measured: tuple[Reading, ...]
    errors: tuple[str | None, ...]
    fitted: tuple[bool, ...]  # whether the surrogate of the task knows it
    seconds: float | None = None
    at: Sequence[float] | None = None  # on the axes of the surrogates, if there
    predicted: tuple[Reading, ...]
    foretold: tuple[Reading, ...]  # predicted before it was measured


def measured_merges(run: FinishedSearch) -> list[MeasuredMerge]:
    """List the merges in the order in which they were measured.

    The single models of nested MAP that are no merges of the last pair come first.
    """
    front, merges = run.front, by_merge(run.evaluations)
    places = [next(iter(merge.values())).coefficients for merge in merges.values()]
    X = run.locate(places)
    found = [_nowhere(front, a) for a in front.anchors if not a.coefficients]
    nothing = dict.fromkeys(front.tasks, UNKNOWN)
    labels = {
        merge_key(m.coefficients): m.label for m in (*front.merges, *front.anchors)
    }
    points = {merge_key(p.coefficients): i for i, p in enumerate(front.points)}
    predicted = predict(run.surrogates, X) if run.surrogates else [nothing] * len(X)
    located = np.asarray(np.isfinite(X).all(axis=1)).tolist()
    rows = zip(merges.items(), places, X.tolist(), located, predicted, strict=True)
    for (key, merge), coefficients, row, known, foreseen in rows:
        evaluations = [merge.get(task) for task in front.tasks]
        found.append(
            MeasuredMerge(
                label=labels.get(key),
                point=points.get(key),
                roles=tuple(dict.fromkeys(e.role for e in merge.values())),
                coefficients=tuple(coefficients[name] for name in front.coefficients),
                measured=tuple(e.reading if e else UNKNOWN for e in evaluations),
                errors=tuple(
                    (e.error or "no finite number") if e and e.failed else None
                    for e in evaluations
                ),
                fitted=tuple(
                    bool(run.surrogates) and known and e is not None and _is_fitted(e)
                    for e in evaluations
                ),
                seconds=sum(e.seconds for e in merge.values()),
                at=row if known else None,
                predicted=tuple(foreseen[task] for task in front.tasks),
                foretold=tuple((e and e.foretold) or UNKNOWN for e in evaluations),
            )
        )
    return found


def _nowhere(front: Front, anchor: Merge) -> MeasuredMerge:
    m, d = len(front.tasks), len(front.coefficients)
    return MeasuredMerge(
        label=anchor.label,
        roles=("anchor",),
        coefficients=(None,) * d,
        measured=tuple(anchor.measured.values()),
        errors=(None,) * m,
        fitted=(False,) * m,
        predicted=(UNKNOWN,) * m,
        foretold=(UNKNOWN,) * m,
    )


def _is_fitted(evaluation: Evaluation) -> bool:
    """Whether the search fits it; version 0.1.0 did not fit its front."""
    assessed = evaluation.role in ASSESSING and evaluation.foretold is None
    return not assessed and not evaluation.failed


Kind: TypeAlias = Literal["curve", "contour", "slices", "none"]
_NODES = {"curve": 101, "contour": 41, "slices": 25}  # along an axis
_DIGITS = 5  # significant ones


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Predictions along one axis, over two, or along each of more; or none.

    Of a task, a curve is (g,), a contour (g, g) with the second axis first, and slices
    are (d, g): through the chosen point, along each axis.
    """

    kind: Kind
    axes: tuple[str, ...]
    nodes: FloatArray  # (d, g)
    points: FloatArray  # (n, d) of the front
    value: FloatArray  # (m, ...)
    stderr: FloatArray  # (m, ...)


def predict_surfaces(run: FinishedSearch) -> Surfaces:
    """Predict every task on a grid, or on slices where there are more than two axes.

    A search without surrogates has no predictions.

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
    grid = (
        np.stack(np.meshgrid(*nodes), axis=-1)
        if d < 3
        else _slices(points[run.front.selected], nodes)
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
    )


def _slices(point: FloatArray, nodes: FloatArray) -> FloatArray:
    """Move a point (d,) along each axis, over its nodes; (d, g, d)."""
    d, g = nodes.shape
    X = np.broadcast_to(point, (d, g, d)).copy()
    for axis in range(d):
        X[axis, :, axis] = nodes[axis]
    return X


def _rounded(grid: FloatArray) -> FloatArray:
    digits = [float(f"{v:.{_DIGITS}g}") for v in grid.ravel()]
    return np.array(digits).reshape(grid.shape)


class ItemReader:
    """Reads the records of a finished search, each file once."""

    def __init__(self, run: FinishedSearch) -> None:
        self._tasks = run.front.metrics
        self._definitions = run.manifest.definitions
        self._folder = run.folder.samples(run.manifest.merge)
        self._known: dict[Key, Items] = {}

    def compare(self, one: Merge, other: Merge, task: str) -> list[object] | None:
        """Count items won, lost and tied, and list those that differ most."""
        found = won_items(
            self.read(one, task), self.read(other, task), self._tasks[task]
        )
        if found is None:
            return None
        most = [(name, float(f"{ahead:.3g}")) for name, ahead in found.most]
        return [found.won, found.lost, found.level, most]

    def read(self, merge: Merge, task: str) -> Items:
        """Read the items of a merge."""
        return self.read_at(merge.coefficients, merge.measured[task].value, task)

    def read_at(
        self, coefficients: Mapping[str, float], value: float | None, task: str
    ) -> Items:
        """Read the items of a merge that measured a value."""
        key = evaluation_key(coefficients, task)
        if value is None or not coefficients:
            return NO_ITEMS
        if key not in self._known:
            self._known[key] = self._read(coefficients, value, task)
        return self._known[key]

    def _read(
        self, coefficients: Mapping[str, float], value: float, task: str
    ) -> Items:
        content = read_sample_file(self._folder / task, coefficients)
        known = self._definitions.get(task)
        if content.get("definition", known) != known:
            return NO_ITEMS
        return read_items(content, value)
