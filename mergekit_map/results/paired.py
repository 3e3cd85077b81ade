"""Differences between merges: their standard errors, and which are significant.

Notation: ``k`` merges of a front (points, reference points and other measured merges),
``r`` comparisons of one merge with another, ``m`` tasks, larger is better; ``n`` items,
``U`` (k, n) influences: how much each item moves the value of each merge, to first
order. The value of a mean moves by (x - mean) / n, a ratio of sums by
(y - ratio * w) / sum(w) (Cochran, Sampling Techniques, 1977, sections 5.9 and 6.4), a
function of one of them by that times its slope.

The influences of a difference are the differences of influences: both merges are
measured on the same draw of items, so that what they share, such as the difficulty of
an item, cancels.

Among many comparisons the best shows a large difference by chance. So all p-values are
adjusted together by Holm's step-down (Scandinavian Journal of Statistics 6, 1979): if
no merge is better, the probability of declaring any one better is at most ``ALPHA``,
for any number of comparisons and any dependence between their errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from mergekit_map.optimize.scalarization import TIE, stderr_of_difference
from mergekit_map.results.records import Frozen, Stderr
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray
from mergekit_map.types import SIGNIFICANT

if TYPE_CHECKING:
    from mergekit_map.results.front import Front

ALPHA = 0.05
BEHIND = 1.0  # standard errors by which a dominating merge may be behind on a task
Places: TypeAlias = IntArray | int  # among the merges that a front knows
_DIGITS = 5  # of a standard error: more than anybody judges by
_ROUNDING = 1e-9


class Differences(Frozen):
    """Standard errors of the differences between merges on one task."""

    items: int = Field(ge=2)
    """Number of documents, blocks or questions that all merges were measured on."""
    answers: bool = False
    """Whether items are right or wrong answers, and not amounts such as losses."""
    merges: tuple[int, ...] = Field(min_length=2)
    """Indices of the merges, counted through points, anchors and merges."""
    stderr: tuple[tuple[Stderr, ...], ...]
    """Rows of the lower triangle: second to first, third to first and second, ..."""

    @model_validator(mode="after")
    def _triangular(self) -> Self:
        if sorted({*self.merges}) != [*self.merges] or self.merges[0] < 0:
            raise ValueError("merges: they are counted from 0, each once, in order")
        if [*map(len, self.stderr)] != [*range(1, len(self.merges))]:
            raise ValueError(f"stderr: no triangle for {len(self.merges)} merges")
        return self

    @classmethod
    def of(
        cls, merges: Sequence[int], stderr: FloatArray, items: int, *, answers: bool
    ) -> Differences:
        """Build from a symmetric array, rounded to a few digits."""
        rows = (stderr[row, :row].tolist() for row in range(1, len(merges)))
        short = tuple(tuple(float(f"{v:.{_DIGITS}g}") for v in row) for row in rows)
        return cls(items=items, answers=answers, merges=tuple(merges), stderr=short)

    def with_room(self, place: int) -> Differences:
        """Return the same with a further merge inserted at a place."""
        moved = (merge + (merge >= place) for merge in self.merges)
        return self.model_copy(update={"merges": tuple(moved)})

    def between(self, ones: IntArray, others: IntArray) -> FloatArray:
        """Return those of pairs of merges, in any shape; NaN where not compared."""
        merges = np.array(self.merges)
        rows, columns = (
            np.searchsorted(merges, some).clip(max=len(merges) - 1)
            for some in (ones, others)
        )
        known = (merges[rows] == ones) & (merges[columns] == others)
        return np.where(known, self.square[rows, columns], np.nan)

    @property
    def square(self) -> FloatArray:
        """Return those of the compared merges, in their order; (r, r)."""
        found = np.zeros((len(self.merges),) * 2)
        rows, columns = np.tril_indices(len(found), -1)
        found[rows, columns] = [value for row in self.stderr for value in row]
        return found + found.T


def stderrs_of_differences(U: FloatArray, strata: IntArray) -> FloatArray:
    """Compute the standard error of the difference between any two merges; (k, k).

    Args:
        U: (k, n) finite influences, which add up to 0 in each part.
        strata: (n,) which part of a group an item was drawn for; each has two or more.
            Parts are drawn by themselves, so that their variances add up.
    """
    variances = np.zeros((len(U), len(U)))
    for part in np.unique(strata):
        V = U[:, strata == part]
        n = V.shape[1]
        # Row by row: a Gram matrix would lose half the digits of a small difference.
        squares = np.array([np.square(V - row).sum(axis=1) for row in V])
        answer = _answer(V)
        if answer is None:
            variances += squares.reshape(variances.shape) * n / (n - 1)
        else:
            extra = answer**2 * (1 - np.eye(len(V)))
            variances += (squares + extra) * (n / (n + 2)) ** 2
    return np.asarray(np.sqrt(variances))


def _answer(V: FloatArray) -> float | None:
    """Return the influence of one answer if all items are right or wrong, else None.

    Of a few dozen answers hardly any differ between two merges, and their variance is
    too small. Agresti and Min (Statistics in Medicine 24, 2005) add half an answer to
    each of the four ways in which two merges can answer.
    """
    low, high = V.min(axis=1, keepdims=True), V.max(axis=1, keepdims=True)
    steps = (high - low)[high > low]
    if not len(steps) or np.ptp(steps) > _ROUNDING * steps.max():
        return None
    near = np.minimum(V - low, high - V)
    return float(steps.max()) if near.max() <= _ROUNDING * steps.max() else None


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
        answers = np.zeros(len(front.tasks), bool)
        for column, task in enumerate(front.tasks):
            if (known := front.differences.get(task)) is not None:
                paired = known.between(ones, others)
                there = ~np.isnan(paired)
                stderr[there, column] = paired[there]
                items[there, column] = known.items
                answers[column] = known.answers
        return cls(Y[ones], Y[others], stderr, items, answers)

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
