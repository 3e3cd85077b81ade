"""What a search has spent, and whether another merge can be paid for.

Budgets are of merges, of documents or of hours. What is spent is read from the log, so
that a search that goes on decides as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mergekit_map.results.log import Evaluation, Key
from mergekit_map.study.study import Study

_SECONDS = 3600


@dataclass(frozen=True)
class Spending:
    """Documents, and seconds, of measurements."""

    documents: float
    seconds: float

    @classmethod
    def of(cls, evaluations: Iterable[Evaluation]) -> Spending:
        """Add up what some measurements took; a document of a merge counts once.

        But for those of merges that were measured in part, and then on all.
        """
        documents, seconds = 0, 0.0
        asked: dict[Key, int] = {}
        for e in evaluations:
            documents += e.n if e.whole else e.n - asked.get(e.key, 0)
            asked[e.key] = 0 if e.whole else e.n
            seconds += e.seconds
        return cls(documents, seconds)

    def __add__(self, other: Spending) -> Spending:
        """Add what else is spent."""
        return Spending(self.documents + other.documents, self.seconds + other.seconds)

    def times(self, count: float) -> Spending:
        """Spend as much so many times."""
        return Spending(count * self.documents, count * self.seconds)


def can_go_on(study: Study, evaluations: Sequence[Evaluation]) -> bool:
    """Tell whether a further merge can be measured, and the end of the search after it.

    Args:
        study: The study.
        evaluations: All that was measured so far, in the order of the log.
    """
    return _can_pay(study, evaluations, 1 + study.search.remeasure)


def can_remeasure(study: Study, evaluations: Sequence[Evaluation]) -> bool:
    """Tell whether a point of the front can be measured, and what must be after it."""
    return _can_pay(study, evaluations, 0 if study.in_part else 1)


def more_choices(study: Study) -> int:
    """Keep measurements of the front for limits, which are met closely."""
    return min(2, study.search.remeasure) if study.select.limited else 0


def _can_pay(study: Study, evaluations: Sequence[Evaluation], merges: int) -> bool:
    """Tell whether so many merges as are searched can be paid for, and the end.

    Nobody knows how many documents the next one is asked: all at most.
    """
    search = study.search
    if search.documents is None and search.hours is None:
        return True
    whole, part = _of_a_merge(study, evaluations)
    n_tasks = len(study.tasks)
    ends = n_tasks + 2 + more_choices(study) + (n_tasks == 1)
    own = (e for e in evaluations if e.taken is None)
    needed = Spending.of(own) + part.times(merges)
    needed += whole.times(ends if study.in_part else 1)
    return (search.documents is None or needed.documents <= search.documents) and (
        search.hours is None or needed.seconds <= _SECONDS * search.hours
    )


def _of_a_merge(
    study: Study, evaluations: Sequence[Evaluation]
) -> tuple[Spending, Spending]:
    """Give what a merge takes on all documents, and what it takes as it is searched."""
    whole, part = Spending(0, 0), Spending(0, 0)
    for task in study.tasks:
        lines = [e for e in evaluations if e.task == task and not e.failed]
        found = [e for e in lines if e.whole]
        parts = [e for e in lines if not e.whole] or found
        whole += Spending.of(found).times(1 / max(len(found), 1))
        part += Spending.of(parts).times(1 / max(len(parts), 1))
    return whole, part
