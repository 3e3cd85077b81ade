"""Standard errors of differences between merges that were measured on the same items.

Notation: ``k`` merges of a front (points, reference points and other measured merges),
``n`` items, ``U`` (k, n) influences: how much each item moves the value of each merge,
to first order. The value of a mean moves by (x - mean) / n, a ratio of sums by
(y - ratio * w) / sum(w) (Cochran, Sampling Techniques, 1977, sections 5.9 and 6.4), a
function of one of them by that times its slope.

The influences of a difference are the differences of influences: both merges are
measured on the same draw of items, so that what they share, such as the difficulty of
an item, cancels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from mergekit_map.results.records import Frozen, Stderr
from mergekit_map.surrogates.arrays import FloatArray, IntArray

_DIGITS = 5  # of a standard error: more than anybody judges by


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


_ROUNDING = 1e-9


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
