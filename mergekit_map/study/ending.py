"""How a search ends: its front is measured where it matters, fitted again, chosen from.

Every prediction of a point that is measured here stays on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from mergekit_map.results.anchor_values import measured_anchors
from mergekit_map.results.choosing import wished
from mergekit_map.results.log import Evaluation, Key, by_merge
from mergekit_map.search.arrays import FloatArray, ranges
from mergekit_map.search.dense import non_dominated
from mergekit_map.search.gain import gains
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.study.fitting import (
    chosen_of,
    fit_surrogates,
    predict_utilities,
    predicted_front,
)
from mergekit_map.study.planning import wanted_evaluations
from mergekit_map.study.refining import ending_of, n_quiet_rounds, n_spent
from mergekit_map.study.spending import more_choices
from mergekit_map.study.study import Candidate, Study, StudyResult

# Predictions that differ by less than this share of a task's range are the same.
_SAME = 1e-6


class MeasureAll(Protocol):
    """Measure, with what predicts them, and give what may be fitted of it."""

    def __call__(
        self,
        planned: Sequence[Candidate],
        surrogates: Mapping[str, Surrogate],
        *,
        always: bool = False,
    ) -> list[Evaluation]:
        """Measure what the budget pays for, or ``always``."""
        ...


def end_search(
    study: Study,
    rounds: Sequence[Sequence[Candidate]],
    known: Sequence[Evaluation],
    measure_all: MeasureAll,
    surrogates: Mapping[str, Surrogate] | None = None,
) -> StudyResult:
    """Measure points that show the front, then the one that is chosen; fit them all.

    A function of what is known and measured here, so that a search that is run again
    ends alike. Surrogates that were fitted to what is known may be given.

    Raises:
        DesignError: a surrogate cannot be fitted.
    """
    end = _End(study, known, measure_all, surrogates)
    rows, selected = end.choose(end.shown_front())
    merges = [study.named(row) for row in rows]
    ending = None
    if study.search.refines:
        quiet = n_quiet_rounds(rounds, end.known)
        spent, allowed = n_spent(study, rounds, end.known), wanted_evaluations(study)
        ending = ending_of(study, end.surrogates, spent, allowed, quiet)
    return StudyResult(end.surrogates, merges, selected, ending=ending)


class _End:
    """What is known while a search ends, and what it predicts by."""

    def __init__(
        self,
        study: Study,
        known: Sequence[Evaluation],
        measure_all: MeasureAll,
        surrogates: Mapping[str, Surrogate] | None,
    ):
        self._study, self._measure_all = study, measure_all
        self._anchors = measured_anchors(study.anchors, known)
        self.known = list(known)
        self.surrogates = surrogates or fit_surrogates(study, known)

    def shown_front(self) -> FloatArray:
        """Find the front, knowing what was measured of it; (k, d)."""
        front = left = predicted_front(self._study, self.surrogates)
        for _ in range(self._study.search.remeasure - more_choices(self._study)):
            if len(left):
                most = self._most_telling(left)
                self._measure(left[[most]])
                left = np.delete(left, most, axis=0)
        if len(left) < len(front):
            front = predicted_front(self._study, self.surrogates)
        return _with_measured(self._study, self.surrogates, front, self.known)

    def choose(self, front: FloatArray) -> tuple[FloatArray, int]:
        """Choose of a front (k, d), and measure the choice; gives its final rows."""
        study = self._study
        lower = wished(study.select, study.tasks, self._anchors).lower
        for _ in range(1 + more_choices(study)):
            rows, selected = self._chosen_of(front)
            self._measure(rows[[selected]], always=True)
            # A merge just within its limits may be outside them once it is fitted.
            utilities = predict_utilities(study, self.surrogates, rows[[selected]])
            if (utilities >= lower).all():
                break
        if len(study.tasks) == 1:
            rows, selected = _best_measured(study, self.known), 0
            self._measure(rows, always=True)
        return rows, selected

    def _most_telling(self, front: FloatArray) -> int:
        """Find the point of a front (k, d) that adds most to what is measured here."""
        own = (e for e in self.known if e.whole and e.role != "imported")
        here = {e.key[0]: e.coefficients for e in own}
        X = self._study.vectors(here.values())
        Y, there = (
            predict_utilities(self._study, self.surrogates, rows)
            for rows in (front, X[self._study.contains(X)])
        )
        worst, width = Y.min(axis=0), ranges(Y)
        return int(gains((Y - worst) / width, (there - worst) / width).argmax())

    def _chosen_of(self, front: FloatArray) -> tuple[FloatArray, int]:
        return chosen_of(self._study, self.surrogates, front, self._anchors)

    def _measure(self, points: FloatArray, *, always: bool = False) -> None:
        """Measure, and fit again if anything is new."""
        named = map(self._study.named, points)
        planned: list[Candidate] = [("front", merge) for merge in named]
        before = {e.key: e for e in self.known}
        measured = self._measure_all(planned, self.surrogates, always=always)
        after = before | _usable(before, measured)
        if any(before.get(key) is not e for key, e in after.items()):
            self.known = list(after.values())
            self.surrogates = fit_surrogates(self._study, self.known)


def _usable(
    before: Mapping[Key, Evaluation], measured: Iterable[Evaluation]
) -> dict[Key, Evaluation]:
    """Take the latest of each, but no failure in the place of a value."""
    return {e.key: e for e in measured if not (e.failed and e.key in before)}


def _best_measured(study: Study, known: Sequence[Evaluation]) -> FloatArray:
    """Take the merge that measured best: of one task, there is nothing else; (1, d)."""
    X, Y = _measured(study, known)
    return np.asarray(X[[np.nanargmax(Y[:, 0])]])


def _with_measured(
    study: Study,
    surrogates: Mapping[str, Surrogate],
    front: FloatArray,
    known: Sequence[Evaluation],
) -> FloatArray:
    """Add merges that survived measurement, in the order of a front; (k, d).

    They take the place of points that predict the same. With one task, one is best.
    """
    X, Y = _measured(study, known)
    first = np.isin(np.arange(len(Y)), np.unique(Y, axis=0, return_index=True)[1])
    survived = X[non_dominated(Y) & first]
    there, added, seen = (
        predict_utilities(study, surrogates, rows) for rows in (front, survived, X)
    )
    width = np.ptp(np.vstack([there, seen]), axis=0)
    apart = np.abs(there[:, None] - added) > _SAME * width
    both = np.vstack([front[apart.any(axis=2).all(axis=1)], survived])
    keys = np.hstack([predict_utilities(study, surrogates, both), both])[:, ::-1]
    ordered = both[np.lexsort(keys.T)]
    return np.asarray(ordered[-1:] if len(study.tasks) == 1 else ordered)


def _measured(
    study: Study, known: Sequence[Evaluation]
) -> tuple[FloatArray, FloatArray]:
    """List the merges of the box, and what all documents said of them.

    Returns:
        (n, d) coefficients, (n, m) larger is better, NaN where there is none.
    """
    found = by_merge(e for e in known if e.whole and not e.failed)
    X = study.vectors(next(iter(of.values())).coefficients for of in found.values())
    rows = [study.utilities(of) for of in found.values()]
    inside = study.contains(X)
    return X[inside], np.array(rows, np.float64).reshape(len(X), -1)[inside]
