"""Dominance between the measured merges of a front.

A merge *dominates* another if it is better on some task by more than noise, and worse
on none by more than noise. All comparisons are tested together: with the differences
item by item where merges were measured on the same items, and otherwise as if their
errors were independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mergekit_map.optimize.degenerate_front import stderr_of_difference
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.multiple_testing import Comparisons, compare
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Dominance:
    """A merge that is better than another on some tasks and worse on none.

    Both hold beyond noise. ``chance``: the largest probability that any of as many
    ``comparisons`` shows such a difference without being better.
    """

    merge: Merge
    other: Merge
    tasks: Mapping[str, float | None]  # standard errors ahead; None where unknown
    within: Sequence[str]  # where noise explains a difference
    level: Sequence[str]  # where there is none, and noise is not known
    chance: float
    comparisons: int
    others: int = 0  # merges besides that are ahead as well


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
class DominanceTest:
    """All comparisons between merges of a front, tested together."""

    front: Front
    rows: Mapping[tuple[int, int], int]  # places among ``front.known`` to a row
    ahead: FloatArray  # (r, m)
    stderr: FloatArray  # (r, m) of that, NaN where unknown
    found: Comparisons

    @classmethod
    def of(cls, front: Front, pairs: Sequence[tuple[Merge, Merge]]) -> DominanceTest:
        """Compare merges with others, each pair once."""
        place = {id(merge): i for i, merge in enumerate(front.known)}
        unique = dict.fromkeys((place[id(a)], place[id(b)]) for a, b in pairs)
        ones, others = np.array([*unique], np.int_).reshape(-1, 2).T
        paired = PairedMerges.of(front, ones, others)
        rows = {pair: row for row, pair in enumerate(unique)}
        return cls(front, rows, paired.ahead, paired.stderr, paired.tested())

    def dominating(self, merges: Sequence[Merge], other: Merge) -> Iterator[Dominance]:
        """List the merges that dominate another one, in their order."""
        for merge, row in self._kept(merges, other):
            if self.found.better[row].any():
                yield self._ahead(merge, other, row, sure=True)

    def nearest(self, merges: Sequence[Merge], other: Merge) -> Dominance | None:
        """Return the merge that would dominate another if fewer were compared."""
        known = [
            self._ahead(merge, other, row, sure=False)
            for merge, row in self._kept(merges, other)
            if self.found.promising[row].any()
        ]
        best = min(known, key=lambda ahead: ahead.chance, default=None)
        return best if best is not None and best.chance < 1 else None

    def _kept(
        self, merges: Sequence[Merge], other: Merge
    ) -> Iterator[tuple[Merge, int]]:
        place = {id(merge): i for i, merge in enumerate(self.front.known)}
        for merge in merges:
            row = self.rows.get((place[id(merge)], place[id(other)]))
            if row is not None and self.found.kept[row]:
                yield merge, row

    def _ahead(self, merge: Merge, other: Merge, row: int, *, sure: bool) -> Dominance:
        found = self.found.better if sure else self.found.promising
        tasks: dict[str, float | None] = {}
        within: list[str] = []
        level: list[str] = []
        for column, task in enumerate(self.front.tasks):
            stderr = float(self.stderr[row, column])
            if found[row, column]:
                ahead = float(self.ahead[row, column])
                exact = ahead / stderr if stderr else math.inf
                tasks[task] = None if np.isnan(stderr) else exact
            else:
                (level if np.isnan(stderr) else within).append(task)
        return Dominance(
            merge,
            other,
            tasks,
            within,
            level,
            chance=float(self.found.chances[row].min()),
            comparisons=self.found.count,
        )
