"""Every merge that was measured, held against what the surrogates say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import UNKNOWN, Front, Merge, Reading
from mergekit_map.results.log import (
    ASSESSING,
    Evaluation,
    MergeKey,
    Role,
    by_merge,
    merge_key,
)
from mergekit_map.results.surrogates import predict


@dataclass(frozen=True, kw_only=True)
class MeasuredMerge:
    """A merge; what is a tuple of many goes by task, if not said otherwise."""

    label: str | None  # of an anchor
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

    Before them the single models of nested MAP that are no merges of the last pair.
    """
    front, merges = run.front, by_merge(run.evaluations)
    places = [next(iter(merge.values())).coefficients for merge in merges.values()]
    X = run.locate(places)
    found = [_nowhere(front, a) for a in front.anchors if not a.coefficients]
    nothing = dict.fromkeys(front.tasks, UNKNOWN)
    anchors, points = _places(front.anchors), _places(front.points)
    predicted = predict(run.surrogates, X) if run.surrogates else [nothing] * len(X)
    located = np.asarray(np.isfinite(X).all(axis=1)).tolist()
    rows = zip(merges.items(), places, X.tolist(), located, predicted, strict=True)
    for (key, merge), coefficients, row, known, foreseen in rows:
        anchor = anchors.get(key)
        evaluations = [merge.get(task) for task in front.tasks]
        found.append(
            MeasuredMerge(
                label=None if anchor is None else front.anchors[anchor].label,
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
    """Tell whether a search fits it; those of 0.1.0 did not fit their fronts."""
    assessed = evaluation.role in ASSESSING and evaluation.foretold is None
    return not assessed and not evaluation.failed


def _places(merges: Sequence[Merge]) -> dict[MergeKey, int]:
    """Say where each merge is, the first of several that are the same."""
    found: dict[MergeKey, int] = {}
    for index, merge in enumerate(merges):
        found.setdefault(merge_key(merge.coefficients), index)
    return found
