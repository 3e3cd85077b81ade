"""Differences between merges: their standard errors, and which are significant.

Notation: ``k`` merges of a front (points, reference points and other measured merges),
``r`` comparisons of one merge with another, ``m`` tasks, larger is better; ``n`` items,
``U`` (k, n) influences: how much each item moves the value of each merge, to first
order. The value of a mean moves by (x - mean) / n, a ratio of sums by
(y - ratio * w) / sum(w) (Cochran, Sampling Techniques, 1977, sections 5.9 and 6.4), a
function of one of them by that times its slope.

The influences of a difference are the differences of influences: what both merges
share, such as the difficulty of an item, cancels.

Among many comparisons the best shows a large difference by chance. So all p-values are
adjusted together by Holm's step-down (Scandinavian Journal of Statistics 6, 1979): if
no merge is better, the probability of declaring any one better is at most ``ALPHA``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from mergekit_map.optimize.scalarization import TIE
from mergekit_map.results.records import Frozen, Stderr
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray
from mergekit_map.types import SIGNIFICANT

if TYPE_CHECKING:
    from mergekit_map.results.front import Front

ALPHA = 0.05
BEHIND = 1.0  # standard errors by which a dominating merge may be behind on a task
Indices: TypeAlias = IntArray | int  # of ``Front.all_merges``
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
        rounded = tuple(tuple(float(f"{v:.{_DIGITS}g}") for v in row) for row in rows)
        return cls(items=items, answers=answers, merges=tuple(merges), stderr=rounded)

    def between(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return those of pairs of merges, in any shape; NaN where not compared."""
        merges = np.array(self.merges)
        rows = np.searchsorted(merges, first).clip(max=len(merges) - 1)
        columns = np.searchsorted(merges, second).clip(max=len(merges) - 1)
        compared = (merges[rows] == first) & (merges[columns] == second)
        pairs = np.broadcast(np.maximum(rows, columns), np.minimum(rows, columns))
        found = [self.stderr[i - 1][j] if i > j else 0.0 for i, j in pairs]
        return np.where(compared, np.reshape(found, pairs.shape), np.nan)


def stderrs_of_differences(U: FloatArray, strata: IntArray) -> FloatArray:
    """Compute the standard error of the difference between any two merges; (k, k).

    The influences ``U`` are finite and add up to 0 in each part of a group of tasks.
    ``strata`` (n,) has the part of each item, with two items or more in each. Parts are
    drawn by themselves, so that their variances add up.
    """
    parts = [U[:, strata == part] for part in np.unique(strata)]
    pairs = [(V, _answer_influence(V)) for V in parts]
    N = sum(V.shape[1] for V, influence in pairs if influence is not None)
    variances = np.zeros((len(U), len(U)))
    for V, influence in pairs:
        n = V.shape[1]
        # Row by row: a Gram matrix would lose half the digits of a small difference.
        squares = np.array([np.square(V - row).sum(axis=1) for row in V])
        variance = squares.reshape(variances.shape) * n / (n - 1)
        if influence is not None:  # each part has its share of the pseudo-answers
            pseudo_answers = influence**2 * (1 - np.eye(len(V))) * n / N
            variance = (variance * (N - 1) / N + pseudo_answers) * (N / (N + 2)) ** 2
        variances += variance
    return np.asarray(np.sqrt(variances))


def _answer_influence(V: FloatArray) -> float | None:
    """Return the influence of one answer if all items are right or wrong, else None.

    Of a few dozen answers hardly any differ between two merges, and their variance is
    too small. Agresti and Min (Statistics in Medicine 24, 2005) add half an answer to
    each of the four ways in which two merges can answer.
    """
    low, high = V.min(axis=1, keepdims=True), V.max(axis=1, keepdims=True)
    widths = (high - low)[high > low]
    if not len(widths) or np.ptp(widths) > _ROUNDING * widths.max():
        return None
    is_binary = np.minimum(V - low, high - V).max() <= _ROUNDING * widths.max()
    return float(widths.max()) if is_binary else None


@dataclass(frozen=True, eq=False)
class PairedMerges:
    """Measured merges beside others, a pair in each row; larger is better."""

    Y: FloatArray  # (r, m) of the first
    other: FloatArray  # (r, m) of the second
    stderr: FloatArray  # (r, m) of the difference, NaN where unknown
    items: FloatArray  # (r, m) that it was estimated from; infinite if not paired
    answers: BoolArray  # (m,) whether items are right or wrong answers

    @classmethod
    def of(cls, front: Front, first: Indices, second: Indices) -> PairedMerges:
        """Pair merges by their indices in ``front.all_merges``; (r,), or one for all.

        Standard errors are paired where both were measured on the same items.
        """
        first, second = np.broadcast_arrays(first, second)
        Y = front.utilities(front.all_merges, "measured")
        errors = front.stderrs(front.all_merges, "measured")
        stderr = np.hypot(errors[first], errors[second])  # as if independent
        items = np.full(stderr.shape, np.inf)
        answers = np.zeros(len(front.tasks), bool)
        for column, task in enumerate(front.tasks):
            if (differences := front.differences.get(task)) is not None:
                paired_stderr = differences.between(first, second)
                is_paired = ~np.isnan(paired_stderr)
                stderr[is_paired, column] = paired_stderr[is_paired]
                items[is_paired, column] = differences.items
                answers[column] = differences.answers
        return cls(Y[first], Y[second], stderr, items, answers)

    @property
    def difference(self) -> FloatArray:
        """Return the differences; (r, m)."""
        return self.Y - self.other

    @property
    def z_scores(self) -> FloatArray:
        """Return the differences in standard errors; (r, m), NaN where a value is.

        Infinite without known noise: it explains no difference.
        """
        # Amounts may be as large as numbers go: then differences are infinite.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            tied = np.abs(self.difference) <= TIE * np.abs(self.other)
            z = np.where(self.answers, self._z_of_answers(), self._z_of_amounts())
            return np.where(np.isnan(self.difference), np.nan, np.where(tied, 0, z))

    def _z_of_amounts(self) -> FloatArray:
        """Convert Student's t to a normal score with the same tail (Wallace, 1959)."""
        t = self.difference / np.nan_to_num(self.stderr)
        df = np.where(np.isinf(self.items), 1.0, self.items - 1)
        z = (8 * df + 1) / (8 * df + 3) * np.sqrt(df * np.log1p(t**2 / df))
        return np.where(np.isinf(self.items), t, np.sign(t) * z)

    def _z_of_answers(self) -> FloatArray:
        """Divide by the standard error under equal merges.

        It takes the second moment of the items, not their variance: a few answers that
        all went one way have little variance and are weak evidence, which Student's t
        ignores. If each answer might as well have gone the other way, the tails of this
        score are about as light as a normal one's (Efron, JASA 64, 1969).
        """
        variance = self.stderr**2 * (1 - 1 / self.items)
        variance += self.difference**2 / self.items
        return self.difference / np.sqrt(np.nan_to_num(variance))

    @property
    def p_values(self) -> FloatArray:
        """Return one-sided p-values, adjusted for all comparisons together; (r, m)."""
        z = self.z_scores
        p_values = np.where(np.isnan(z), np.nan, np.where(z > 0, 0.0, 1.0))
        known = ~np.isnan(self.stderr) & ~np.isnan(z)
        scores = z[known].tolist()
        tails = np.array([math.erfc(score / math.sqrt(2)) / 2 for score in scores])
        order = np.argsort(tails, kind="stable")  # Holm's step-down
        stepped = np.maximum.accumulate(tails[order] * np.arange(len(tails), 0, -1))
        tails[order] = np.minimum(stepped, 1.0)
        p_values[known] = tails
        return p_values

    @property
    def better(self) -> BoolArray:
        """Return where the first merge is better by more than noise; (r, m)."""
        return (self.p_values <= ALPHA) & (self.z_scores >= SIGNIFICANT)


def stderrs_beside(front: Front, index: int, task: str) -> FloatArray:
    """Return the standard errors of other measured merges minus one; (k,), k >= 1.

    Errors are independent where no items were compared; NaN where none is known.
    """
    if (differences := front.differences.get(task)) is not None:
        stderrs = differences.between(np.array(index), np.array(differences.merges))
        if (stderrs > 0).any():
            return np.asarray(stderrs[stderrs > 0])
    stderr = front.all_merges[index].measured[task].stderr
    return np.array([math.sqrt(2) * (math.nan if stderr is None else stderr)])
