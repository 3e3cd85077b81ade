"""What a merge will do on each document, if all documents are alike draws.

Notation: ``M`` merges at ``U`` (M, d), scaled to [-1/2, 1/2]; ``D`` documents; ``Y``
(M, D), NaN where a document was not asked. Document j says at merge i

    Y[i, j] = level[i] + own_j[i]

Its own part is a draw of the process of ``kernel.py``: a free constant, a quadratic, a
Matérn process and noise, as large for all documents but for one factor of each, its
scale, which is inverse gamma (Shah, Wilson and Ghahramani, AISTATS 2014: a Student-t
process). The level is another such process without constant and noise. Both are
kriged from whatever was asked (Rasmussen and Williams 2006, chapter 2; the level as the
generalised least squares of section 2.7); documents asked at the same merges share one
factorisation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from mergekit_map.search.arrays import BoolArray, FloatArray, IntArray
from mergekit_map.search.kernel import (
    LENGTHS,
    Covariance,
    Rows,
    covariance_to,
    process_covariance,
    term_widths,
)
from mergekit_map.search.quadratic import quadratic_features

# Logarithms of the widths of linear terms, squares, products, noise, noise of slopes
# (there are none) and height, and how vague they are; then of the lengths.
_BELIEF = np.log([1.0, 1.0, 1.0, 0.05, 1.0, 0.3])
_VAGUENESS = np.array([1.5, 1.5, 1.5, 2.0, 1.0, 1.5])
_LENGTH, _VAGUE_LENGTH = 0.0, 0.5
_LEAST, _MOST = -9.0, 5.0
_FREEDOM = 5.0  # degrees of freedom of the scales of documents
_EFFORT = 3e6  # multiplications per step of the fit
_STEPS = 25
_CHUNK = 2e6  # numbers held at once


@dataclass(frozen=True, eq=False)
class Kriged:
    """What is expected at one merge."""

    mean: FloatArray  # (D,) NaN for documents never asked
    deviation: FloatArray  # (D,) standard deviations of each document's own part
    level: float  # the standard deviation of the error that all have in common


def krige(place: FloatArray, places: FloatArray, Y: FloatArray) -> Kriged:
    """Foresee every document at a merge from what all were asked before.

    Args:
        place: (d,) in the unit box.
        places: (M, d) likewise, at least one.
        Y: (M, D) NaN where not asked.
    """
    asked = np.isfinite(Y)
    scale = _spread(Y)
    Z = np.where(asked, Y, 0.0) / scale
    U = np.vstack([places, place]) - 0.5
    theta = _start(U.shape[1])
    for _ in range(2):
        level = _Level(U, theta, Z, asked)
        theta = _climb(U[:-1], theta, np.where(asked, Z - level.at_merges, 0.0), asked)
    return _Level(U, theta, Z, asked).krige(scale)


def _spread(Y: FloatArray) -> float:
    """Give a typical distance between documents, as the unit of values."""
    spread = float(np.nanstd(Y))
    return spread if spread > 1e-12 * np.nanmax(np.abs(Y)) else 1.0


def _start(d: int) -> FloatArray:
    return np.concatenate([_BELIEF, np.full(d, _LENGTH + math.log(d) / 2)])


def _rows(U: FloatArray) -> Rows:
    return Rows(U, np.zeros(0, dtype=np.int_), np.ones(len(U)))


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Documents asked at as many merges, and the inverse covariances there."""

    documents: IntArray  # (g,)
    merges: IntArray  # (p, n) for each distinct choice of merges
    which: IntArray  # (g,) the choice of each document
    inverses: FloatArray  # (p, n, n)
    log_determinants: FloatArray  # (p,)

    def values(self, Z: FloatArray) -> FloatArray:
        """Take what these documents said; (g, n)."""
        return Z[self.merges[self.which], self.documents[:, None]]

    def solve(self, values: FloatArray) -> FloatArray:
        """Multiply (g, n) values of each document by its inverse; (g, n)."""
        if len(self.inverses) == 1:
            return np.asarray(values @ self.inverses[0])
        return np.asarray(
            np.einsum("gij,gj->gi", self.inverses[self.which], values, optimize=True)
        )


def _patterns(whole: FloatArray, asked: BoolArray) -> Iterator[_Pattern]:
    """Group documents (M, D) that were asked at the same merges, or at as many."""
    choices, which = np.unique(asked.T, axis=0, return_inverse=True)
    which, counts = which.reshape(-1), choices.sum(axis=1)
    for n in np.unique(counts[counts > 0]):
        chosen = np.flatnonzero(counts == n)
        size = max(int(_CHUNK // n**2), 1)
        for first in range(0, len(chosen), size):
            part = chosen[first : first + size]
            merges = np.nonzero(choices[part])[1].reshape(-1, n)
            documents = np.flatnonzero(np.isin(which, part))
            own = np.searchsorted(part, which[documents])
            inverses, logs = _inverses(whole, merges)
            yield _Pattern(documents, merges, own, inverses, logs)


def _inverses(whole: FloatArray, merges: IntArray) -> tuple[FloatArray, FloatArray]:
    parts = whole[merges[:, :, None], merges[:, None, :]]
    roots = np.linalg.cholesky(parts)
    logs = 2 * np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    inverses = np.linalg.inv(parts)
    return (inverses + inverses.transpose(0, 2, 1)) / 2, logs


def _weights(pattern: _Pattern, distance: FloatArray) -> FloatArray:
    """Weigh documents by what their scales are expected to be, 1 on average."""
    n = pattern.merges.shape[1] - 1  # the constant is free
    return np.asarray((_FREEDOM + n) / (_FREEDOM - 2 + distance))


class _Level:
    """The level at the merges and at the last place of U (M + 1, d), and what follows.

    With A the sum over documents of their inverse covariances and K the covariance of
    the level, that of its error is ``(1/K + A)^-1 = K (1 + A K)^-1``.
    """

    def __init__(
        self, U: FloatArray, theta: FloatArray, Z: FloatArray, asked: BoolArray
    ):
        self._theta, self._Z, self._U = theta, Z, U
        self._M = len(U) - 1
        self._whole = Covariance(_rows(U[:-1]), theta).whole
        self._patterns = list(_patterns(self._whole, asked))
        prior = _smooth_covariance(U, theta)
        flat = np.zeros(self._M)
        for _ in range(2):  # the scales of documents follow from the level
            A, pull = self._precision(flat)
            self._error = prior @ np.linalg.inv(np.eye(len(U)) + A @ prior)
            self._level = self._error @ pull
            flat = self._level[:-1]

    @property
    def at_merges(self) -> FloatArray:
        """Give the level at the merges, as a column (M, 1)."""
        return np.asarray(self._level[:-1, None])

    def _precision(self, level: FloatArray) -> tuple[FloatArray, FloatArray]:
        M = self._M
        A, pull = np.zeros((M + 1, M + 1)), np.zeros(M + 1)
        for pattern in self._patterns:
            values, merges = pattern.values(self._Z), pattern.merges
            away = values - level[merges[pattern.which]]
            weights = _weights(pattern, (pattern.solve(away) * away).sum(axis=1))
            pulls = weights[:, None] * pattern.solve(values)
            np.add.at(pull, merges[pattern.which], pulls)
            heavy = np.bincount(pattern.which, weights, len(merges))
            inner = heavy[:, None, None] * pattern.inverses
            np.add.at(A, (merges[:, :, None], merges[:, None, :]), inner)
        return A, pull

    def krige(self, scale: float) -> Kriged:
        """Foresee at the last place, in units of which the values are 1/scale."""
        rows, D = _rows(self._U[:-1]), self._Z.shape[1]
        [link] = covariance_to(rows, self._theta, self._U[-1:])
        prior = float(Covariance(_rows(self._U[-1:]), self._theta).whole[0, 0])
        mean, variance = np.full(D, np.nan), np.full(D, np.nan)
        used, count = np.zeros(self._M + 1), 0
        for pattern in self._patterns:
            to = link[pattern.merges]  # (p, n)
            pull = np.einsum("pij,pj->pi", pattern.inverses, to)
            left = np.maximum(prior - (pull * to).sum(axis=1), 1e-12)
            away = pattern.values(self._Z) - self._level[pattern.merges[pattern.which]]
            own = pull[pattern.which]
            mean[pattern.documents] = (own * away).sum(axis=1) + self._level[-1]
            distance = (pattern.solve(away) * away).sum(axis=1)
            variance[pattern.documents] = left[pattern.which] / _weights(
                pattern, distance
            )
            np.add.at(used, pattern.merges[pattern.which], own)
            count += len(own)
        used = -used / max(count, 1)
        used[-1] = 1.0
        common = math.sqrt(max(float(used @ self._error @ used), 0.0))
        return Kriged(scale * mean, scale * np.sqrt(variance), scale * common)


def _smooth_covariance(U: FloatArray, theta: FloatArray) -> FloatArray:
    """Give the covariance of the level: no constant, no noise."""
    widths = term_widths(U.shape[1], theta)
    terms = (quadratic_features(U) * widths)[:, 1:]
    return np.asarray(terms @ terms.T + process_covariance(U, U, theta))


def _climb(
    U: FloatArray, start: FloatArray, Z: FloatArray, asked: BoolArray
) -> FloatArray:
    """Find the most probable theta of documents' own parts, from some of them."""
    few = _representatives(asked)
    Z, asked, rows = Z[:, few], asked[:, few], _rows(U)
    d = U.shape[1]
    belief = _start(d)
    vagueness = np.concatenate([_VAGUENESS, np.full(d, _VAGUE_LENGTH)])

    def surprise(theta: FloatArray) -> tuple[float, FloatArray]:
        covariance = Covariance(rows, theta)
        away = (theta - belief) / vagueness
        try:
            value, outer = _surprise(covariance.whole, Z, asked)
        except np.linalg.LinAlgError:
            return 1e12, np.zeros_like(theta)
        slopes = covariance.slopes(outer) / 2 + away / vagueness
        return value + float(away @ away) / 2, slopes

    ends = [(_LEAST, _MOST)] * LENGTHS + [(-1.5, 2.0)] * d
    found = minimize(
        surprise,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=ends,
        options={"maxiter": _STEPS},
    )
    return np.asarray(found.x)


def _surprise(
    whole: FloatArray, Z: FloatArray, asked: BoolArray
) -> tuple[float, FloatArray]:
    """Give minus the log likelihood, up to a constant, and twice its slopes."""
    outer, value = np.zeros_like(whole), 0.0
    for pattern in _patterns(whole, asked):
        values, merges = pattern.values(Z), pattern.merges
        pulls = pattern.solve(values)
        distance = (pulls * values).sum(axis=1)
        freedom = _FREEDOM + merges.shape[1] - 1
        value += float(pattern.log_determinants[pattern.which].sum()) / 2
        value += freedom / 2 * float(np.log1p(distance / (_FREEDOM - 2)).sum())
        own = merges[pattern.which]
        weighted = pulls * _weights(pattern, distance)[:, None]
        counts = np.bincount(pattern.which, minlength=len(merges))
        inverses = counts[:, None, None] * pattern.inverses
        np.add.at(outer, (merges[:, :, None], merges[:, None, :]), inverses)
        np.add.at(
            outer,
            (own[:, :, None], own[:, None, :]),
            -weighted[:, :, None] * pulls[:, None, :],
        )
    return value, outer


def _representatives(asked: BoolArray) -> IntArray:
    """Take documents from all over the list, as many as there is time for."""
    counts = asked.sum(axis=0)
    known = np.flatnonzero(counts > 1)
    if not len(known):
        return known
    golden = (np.arange(len(known)) * 0.6180339887498949) % 1.0
    order = known[np.argsort(golden)]
    distinct = np.unique(asked[:, order], axis=1).shape[1]
    cost = counts[order] ** 2.0 * (10 + counts[order] * min(distinct, 99) / 99)
    return np.sort(order[np.cumsum(cost) <= max(_EFFORT, cost[:8].sum())])
