"""A further merge, or more documents of one that is there: what teaches more.

Notation: ``k`` merges of a front, ``m`` tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mergekit_map.results.log import Evaluation, MergeKey, by_merge, merge_key
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.search.teaching import taught
from mergekit_map.study.study import Candidate, Study

# What a new merge may teach beside the front as it is predicted is not counted.
_CLEARLY = 2.0


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
    adds to a measurement, as one more measurement of the same noise would.

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
    units = dict(zip(study.tasks, width, strict=True))
    rates = {task: _seconds_per_document(known, task) for task in study.tasks}

    def worth(merge: Mapping[str, float], measured: Sequence[Evaluation]) -> float:
        """Say what is learnt per second if it is measured as these were."""
        x, gained, seconds = study.vector(merge), 0.0, 0.0
        for e in measured:
            fall = taught(surrogates[e.task], front, x, e.stderr or 0.0)
            gained += fall / float(units[e.task]) ** 2
            seconds += rates[e.task] * e.n
        return gained / seconds if seconds else 0.0

    again = {
        key: worth(dict(key), [e for e in found.values() if e.stderr])
        for key, found in merges.items()
    }
    best = max(again, key=lambda key: again[key])
    _, new = planned[0]
    if again[best] <= _CLEARLY * worth(new, _typical(study, known, parts)):
        return planned
    return [("refinement", next(iter(merges[best].values())).coefficients)]


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


def _typical(
    study: Study, known: Sequence[Evaluation], parts: Sequence[Evaluation]
) -> list[Evaluation]:
    """Take, for each task, the measurement of median error, of parts if there are."""
    typical = []
    for task in study.tasks:
        found = [e for e in parts if e.task == task]
        found = found or [e for e in known if e.task == task and not e.failed]
        ordered = sorted(found, key=lambda e: e.stderr or 0.0)
        typical += ordered[len(ordered) // 2 : len(ordered) // 2 + 1]
    return typical
