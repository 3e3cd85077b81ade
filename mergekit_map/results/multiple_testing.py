"""Multiple testing: which of many differences between merges are significant.

Notation: ``r`` comparisons of one merge with another, ``m`` tasks, larger is better.

Among many comparisons the best shows a large difference by chance. So all p-values are
adjusted together by Holm's step-down (Scandinavian Journal of Statistics 6, 1979): if
no merge is better, the probability of declaring any one better is at most ``ALPHA``,
for any number of comparisons and any dependence between their errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mergekit_map.optimize.scalarization import TIE, stderr_of_difference
from mergekit_map.results.front import Front
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray
from mergekit_map.types import SIGNIFICANT

ALPHA = 0.05
BEHIND = 1.0  # standard errors by which a dominating merge may be behind on a task
Places: TypeAlias = IntArray | int  # among the merges that a front knows


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Differences between merges, and which of them exceed noise."""

    scores: FloatArray  # (r, m) standard errors ahead; infinite without known noise
    chances: FloatArray  # (r, m) of one as far ahead among all of them, at most

    @property
    def better(self) -> BoolArray:
        """Return where a merge is better by more than noise; (r, m)."""
        found: BoolArray = (self.chances <= ALPHA) & (self.scores >= SIGNIFICANT)
        return found

    @property
    def kept(self) -> BoolArray:
        """Return which merges are behind on no task by a standard error; (r,)."""
        found: BoolArray = np.all(self.scores > -BEHIND, axis=1)
        return found


@dataclass(frozen=True, eq=False)
class PairedMerges:
    """Measured merges beside others, a pair in each row; larger is better."""

    Y: FloatArray  # (r, m) of the first
    other: FloatArray  # (r, m) of the second
    stderr: FloatArray  # (r, m) of the difference, NaN where unknown
    items: FloatArray  # (r, m) that it was estimated from; infinite if not paired
    answers: BoolArray  # (m,) whether items are right or wrong answers

    @classmethod
    def of(cls, front: Front, ones: Places, others: Places) -> PairedMerges:
        """Pair merges by their places among ``front.known``; (r,), or one for all.

        Standard errors are paired where both were measured on the same items.
        """
        ones, others = np.broadcast_arrays(ones, others)
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
        """Test all differences together; NaN where a value is.

        Noise explains no difference whose standard error is unknown.
        """
        # Amounts may be as large as numbers go: then one is ahead by infinitely much.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ahead = self.ahead
            tied = np.abs(ahead) <= TIE * np.abs(self.other)
            scores = np.where(
                self.answers,
                _of_answers(ahead, self.stderr, self.items),
                _of_amounts(ahead, self.stderr, self.items),
            )
        scores[tied] = 0
        scores = np.where(np.isnan(ahead), np.nan, scores)
        known = ~np.isnan(self.stderr) & ~np.isnan(ahead)
        chances = np.where(np.isnan(scores), np.nan, np.where(scores > 0, 0.0, 1.0))
        tails = [math.erfc(s / math.sqrt(2)) / 2 for s in scores[known].tolist()]
        chances[known] = _adjusted(np.array(tails, np.float64))
        return Comparisons(scores, chances)


def _of_amounts(ahead: FloatArray, stderr: FloatArray, items: FloatArray) -> FloatArray:
    """Convert Student's t to the normal score with the same tail (Wallace, 1959)."""
    t = ahead / np.nan_to_num(stderr)
    n = np.where(np.isinf(items), 1.0, items - 1)
    short = (8 * n + 1) / (8 * n + 3) * np.sqrt(n * np.log1p(t**2 / n))
    return np.where(np.isinf(items), t, np.sign(t) * short)


def _of_answers(ahead: FloatArray, stderr: FloatArray, items: FloatArray) -> FloatArray:
    """Divide by the standard error under equal merges.

    It takes the second moment of the items, not their variance: a few answers that all
    went one way have little variance and are weak evidence, which Student's t ignores.
    If each answer might as well have gone the other way, the tails of this score are
    about as light as a normal one's (Efron, JASA 64, 1969).
    """
    squared = stderr**2 * (1 - 1 / items) + ahead**2 / items
    return ahead / np.sqrt(np.nan_to_num(squared))


def _adjusted(chances: FloatArray) -> FloatArray:
    """Adjust p-values (n,) by Holm's step-down; (n,)."""
    n = len(chances)
    order = np.argsort(chances, kind="stable")
    stepped = np.maximum.accumulate(chances[order] * (n - np.arange(n)))
    found = np.empty(n)
    found[order] = np.minimum(stepped, 1.0)
    return found
