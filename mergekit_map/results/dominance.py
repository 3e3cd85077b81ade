"""Dominance between the measured merges of a front.

A merge *dominates* another if it is significantly better on some task, and worse on
none by more than noise. Differences are paired where merges were measured on the same
items; otherwise their errors are taken to be independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mergekit_map.optimize.degenerate_front import stderr_of_difference
from mergekit_map.optimize.selection import select_by_preference
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.multiple_testing import Comparisons, compare
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PairedMerges:
    """Measured merges beside others, a pair in each row; larger is better."""

    Y: FloatArray  # (r, m) of the first
    other: FloatArray  # (r, m) of the second
    stderr: FloatArray  # (r, m) of the difference, NaN where unknown
    items: FloatArray  # (r, m) that it was estimated from; infinite if not paired
    answers: BoolArray  # (m,) whether items are right or wrong answers

    @classmethod
    def of(cls, front: Front, ones: IntArray, others: IntArray) -> PairedMerges:
        """Pair merges by their places among ``front.known``; (r,) each.

        Standard errors are paired where both were measured on the same items.
        """
        Y = front.utilities(front.known, "measured")
        errors = front.stderrs(front.known, "measured")
        stderr = stderr_of_difference(errors[ones], errors[others])
        items = np.full(stderr.shape, np.inf)
        differences = [front.differences.get(task) for task in front.tasks]
        for column, known in enumerate(differences):
            if known is not None:
                paired = known.between(ones, others)
                there = ~np.isnan(paired)
                stderr[there, column] = paired[there]
                items[there, column] = known.items
        answers = [known is not None and known.answers for known in differences]
        return cls(Y[ones], Y[others], stderr, items, np.array(answers))

    @property
    def ahead(self) -> FloatArray:
        """Return the differences; (r, m)."""
        return self.Y - self.other

    def tested(self) -> Comparisons:
        """Test all differences together."""
        return compare(self.Y, self.other, self.stderr, self.items, self.answers)


@dataclass(frozen=True, eq=False)
class Dominance:
    """A merge that is better than the chosen one on some tasks and worse on none."""

    merge: Merge
    tasks: Sequence[str]  # where it is significantly better
    amounts: Sequence[float]  # by how much there; larger is better
    stderrs: Sequence[float]  # of the amounts; NaN where unknown


def dominating_merge(front: Front) -> Dominance | None:
    """Return the best merge that dominates the chosen one, if one does.

    All measured merges, reference points apart, are compared with it and tested
    together: if none is better, one is found with a probability of at most 5 %. Of
    several, the one with the largest sum is returned.
    """
    Y = front.utilities(front.known, "measured")
    rows = np.flatnonzero(np.isfinite(Y).all(axis=1))
    first = len(front.points)
    references = (rows >= first) & (rows < first + len(front.anchors))
    rivals = rows[~references & (rows != front.selected)]
    if front.selected not in rows or not len(rivals):
        return None
    paired = PairedMerges.of(front, rivals, np.full_like(rivals, front.selected))
    found = paired.tested()
    ahead = np.flatnonzero(found.kept & found.better.any(axis=1))
    if not len(ahead):
        return None
    best = ahead[select_by_preference(paired.Y[ahead], np.ones(Y.shape[1]))]
    columns = np.flatnonzero(found.better[best])
    tasks = list(front.tasks)
    return Dominance(
        front.known[rivals[best]],
        [tasks[column] for column in columns],
        paired.ahead[best, columns].tolist(),
        paired.stderr[best, columns].tolist(),
    )
