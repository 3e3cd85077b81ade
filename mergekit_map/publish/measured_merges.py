"""Every merge that was measured, held against what the surrogates say of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from mergekit_map.publish.surfaces import locate
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import Merge
from mergekit_map.results.log import ASSESSING, Evaluation, evaluation_key

_Evaluations: TypeAlias = Mapping[str, Evaluation]  # of one merge, by task


def measured_merges(run: FinishedSearch) -> list[dict[str, Any]]:
    """List the merges as plain data, in the order in which they were measured.

    ``at`` is where a merge lies on the axes of the surrogates, null where none was
    fitted. ``measured``, ``predicted``, ``errors``, and ``fitted``, whether the
    surrogate of the task knows the merge, go by task; a reading is a value and its
    standard error.
    """
    found: dict[Any, dict[str, Evaluation]] = {}
    for e in run.evaluations:
        found.setdefault(evaluation_key(e.coefficients, ""), {})[e.task] = e
    merges = list(found.values())
    rows = [_measured(run, merge) for merge in merges]
    return [*_anchors_without_place(run), *_with_predictions(run, rows)]


def _measured(run: FinishedSearch, merge: _Evaluations) -> dict[str, Any]:
    coefficients = next(iter(merge.values())).coefficients
    evaluations = [merge.get(task) for task in run.front.tasks]
    anchor = _find(run.front.anchors, coefficients)
    return {
        "label": None if anchor is None else run.front.anchors[anchor].label,
        "point": _find(run.front.points, coefficients),
        "roles": list(dict.fromkeys(e.role for e in merge.values())),
        "coefficients": [coefficients[name] for name in run.front.coefficients],
        "measured": [
            None if e is None or e.failed else [e.value, e.stderr] for e in evaluations
        ],
        "errors": [
            (e.error or "no finite number") if e and e.failed else None
            for e in evaluations
        ],
        "fitted": [
            e is not None and not e.failed and e.role not in ASSESSING
            for e in evaluations
        ],
        "seconds": sum(e.seconds for e in merge.values()),
    }


def _find(merges: Iterable[Merge], coefficients: Mapping[str, float]) -> int | None:
    for index, merge in enumerate(merges):
        if merge.coefficients == coefficients:
            return index
    return None


def _with_predictions(
    run: FinishedSearch, rows: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    names = list(run.front.coefficients)
    X = locate(run, (dict(zip(names, r["coefficients"], strict=True)) for r in rows))
    inside = np.all(np.isfinite(X), axis=1)
    readings = np.full((len(rows), len(run.front.tasks), 2), np.nan)
    for column, task in enumerate(run.front.tasks):
        surrogate = run.surrogates[task]
        readings[inside, column, 0] = surrogate.predict(X[inside])
        readings[inside, column, 1] = surrogate.stderr(X[inside])
    for row, place, known, predicted in zip(rows, X, inside, readings, strict=True):
        yield {
            **row,
            "at": place.tolist() if known else None,
            "fitted": [bool(known) and fitted for fitted in row["fitted"]],
            "predicted": [r.tolist() if known else None for r in predicted],
        }


def _anchors_without_place(run: FinishedSearch) -> list[dict[str, Any]]:
    """List the single models of nested MAP that are no merges of the last pair."""
    empty = [None] * len(run.front.tasks)
    return [
        {
            "label": anchor.label,
            "point": None,
            "roles": ["anchor"],
            "coefficients": [None] * len(run.front.coefficients),
            "measured": [
                None if reading.value is None else [reading.value, reading.stderr]
                for reading in anchor.measured.values()
            ],
            "errors": empty,
            "seconds": None,
            "at": None,
            "fitted": [False] * len(run.front.tasks),
            "predicted": empty,
        }
        for anchor in run.front.anchors
        if not anchor.coefficients
    ]
