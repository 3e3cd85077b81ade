"""The hours that a search has spent, and whether another merge can be paid for.

They are read from the log, so that a search that goes on decides as one that was never
stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from mergekit_map.results.log import Evaluation
from mergekit_map.study.study import Study

_SECONDS = 3600


def can_go_on(study: Study, evaluations: Sequence[Evaluation]) -> bool:
    """Whether a further merge can be measured, and the end of the search after it.

    Args:
        study: The study.
        evaluations: All that was measured so far, in the order of the log.
    """
    return _can_pay(study, evaluations, merges=1, ends=study.search.remeasure + 1)


def can_remeasure(study: Study, evaluations: Sequence[Evaluation]) -> bool:
    """Whether a point of the front can be measured, and what is chosen after it."""
    return _can_pay(study, evaluations, merges=0, ends=2)


def more_choices(study: Study) -> int:
    """Return how many measurements of the front are kept for limits.

    These are met closely.
    """
    return min(2, study.search.remeasure) if study.select.limited else 0


def _can_pay(
    study: Study, evaluations: Sequence[Evaluation], *, merges: int, ends: int
) -> bool:
    """Whether the hours allow more merges, and ``ends`` on all documents after them."""
    if study.search.hours is None:
        return True
    needed = sum(e.seconds for e in evaluations if e.taken is None)
    for task in study.tasks:
        lines = [e for e in evaluations if e.task == task and not e.failed]
        whole = _mean_seconds([e for e in lines if e.whole])
        subset = _mean_seconds([e for e in lines if not e.whole])
        needed += ends * whole + merges * (subset or whole)
    return needed <= _SECONDS * study.search.hours


def _mean_seconds(lines: Sequence[Evaluation]) -> float:
    return sum(e.seconds for e in lines) / max(len(lines), 1)
