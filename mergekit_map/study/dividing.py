"""A further merge, or more documents of one that is there: what teaches more.

Notation: ``k`` merges of a front, ``m`` tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from mergekit_map.results.log import Evaluation, MergeKey, by_merge, merge_key
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.search.teaching import taught
from mergekit_map.study.study import Candidate, Study

# What a new merge may teach beside the front as it is predicted is not counted.
_CLEARLY = 2.0
_OF_A_ROUND = 1.0  # seconds that a round takes whatever is measured


def best_spent(
    study: Study,
    planned: list[Candidate],
    rounds: Sequence[Sequence[Candidate]],
    known: Sequence[Evaluation],
    surrogates: Mapping[str, Surrogate],
    front: FloatArray,
    width: FloatArray,
) -> list[Candidate]:
    """Propose a merge of before, where more of its documents teach more per second.

    Else what is planned. Twice as many documents halve the variance that their choice
    adds to a measurement.

    Args:
        study: The study.
        planned: A merge to measure, or none.
        rounds: What was proposed before.
        known: What was measured of that.
        surrogates: Fitted to it.
        front: (k, d) merges of it.
        width: (m,) range of each task over the front.
    """
    parts = [e for e in known if not (e.whole or e.failed)]
    asked = {merge_key(c) for candidates in rounds for _, c in candidates}
    merges = by_merge(
        e
        for e in parts
        if e.key[0] in asked and study.contains(study.vectors([e.coefficients])).all()
    )
    if not merges or not planned:
        return planned
    options = [(next(iter(of.values())).coefficients, of) for of in merges.values()]
    options.append((planned[0][1], _typical(study, known, parts)))
    X = study.vectors(merge for merge, _ in options)
    is_there = np.arange(len(options)) < len(merges)
    gained, seconds = np.zeros(len(options)), np.full(len(options), _OF_A_ROUND)
    for task, unit in zip(study.tasks, width, strict=True):
        measured = [found.get(task) for _, found in options]
        stderr = np.array([_error_of_part(e) for e in measured])
        gained += taught(surrogates[task], front, X, stderr, is_there) / unit**2
        rate = _seconds_per_document(known, task)
        seconds += rate * np.array([0 if e is None else e.n for e in measured])
    *again, new = gained / seconds
    best = int(np.argmax(again))
    return (
        [("refinement", options[best][0])] if again[best] > _CLEARLY * new else planned
    )


def times_asked(
    rounds: Sequence[Sequence[Candidate]],
) -> dict[MergeKey, int]:
    """Count how often rounds asked for each merge: first, and for more documents."""
    times: dict[MergeKey, int] = {}
    for candidates in rounds:
        for key in {merge_key(c) for _, c in candidates}:
            times[key] = times.get(key, 0) + 1
    return times


def _seconds_per_document(known: Sequence[Evaluation], task: str) -> float:
    """Give the median, to a factor of two: the same decisions on another day."""
    rates = [e.seconds / e.n for e in known if e.task == task and e.n and e.seconds > 0]
    return float(2.0 ** np.round(np.log2(np.median(rates)))) if rates else 1.0


def _error_of_part(measured: Evaluation | None) -> float:
    """Give the error that a part has for not being all; infinite for no measurement."""
    if measured is None:
        return math.inf
    return 0.0 if measured.whole else measured.stderr or 0.0


def _typical(
    study: Study, known: Sequence[Evaluation], parts: Sequence[Evaluation]
) -> dict[str, Evaluation]:
    """Take, for each task, the measurement of median error, of parts if there are."""
    typical = {}
    for task in study.tasks:
        found = [e for e in parts if e.task == task]
        found = found or [e for e in known if e.task == task and not e.failed]
        ordered = sorted(found, key=_error_of_part)
        if ordered:
            typical[task] = ordered[len(ordered) // 2]
    return typical
