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
from dataclasses import dataclass

import numpy as np

from mergekit_map.search.arrays import BoolArray, FloatArray, IntArray
from mergekit_map.search.kernel import (
    LENGTHS,
    Covariance,
    Rows,
    covariance_to,
    process_covariance,
    term_widths,
)
from mergekit_map.search.minimum import find_minimum
from mergekit_map.search.quadratic import quadratic_features

# Logarithms of the widths of linear terms, squares, products, noise, noise of slopes
# (there are none) and height, and how vague they are; then of the lengths.
_BELIEF = np.log([1.0, 1.0, 1.0, 0.05, 1.0, 0.3])
_VAGUENESS = np.array([1.5, 1.5, 1.5, 2.0, 1.0, 1.5])
_LENGTH, _VAGUE_LENGTH = 0.0, 0.5
_LEAST, _MOST = -9.0, 5.0
_FREEDOM = 5.0  # degrees of freedom of the scales of documents
_EFFORT = 1e6  # multiplications per step of the fit
_STEPS = 10
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
    groups, few = grouped(Z, asked), _representatives(asked)
    for _ in range(2):
        own = Z - Level(U, theta, groups).at_merges
        theta = _climb(U[:-1], theta, grouped(own[:, few], asked[:, few]))
    return Level(U, theta, groups).krige(scale, Y.shape[1])


def _spread(Y: FloatArray) -> float:
    """Give a typical distance between documents, as the unit of values."""
    spread = float(np.nanstd(Y))
    return spread if spread > 1e-12 * np.nanmax(np.abs(Y)) else 1.0


def _start(d: int) -> FloatArray:
    return np.concatenate([_BELIEF, np.full(d, _LENGTH + math.log(d) / 2)])


def _rows(U: FloatArray) -> Rows:
    return Rows(U, np.zeros(0, dtype=np.int_), np.ones(len(U)))


@dataclass(frozen=True, eq=False)
class Group:
    """Documents that were asked at as many merges."""

    documents: IntArray  # (g,)
    merges: IntArray  # (p, n) each choice of merges
    which: IntArray  # (g,) the choice of each document
    values: FloatArray  # (g, n)

    @property
    def own(self) -> IntArray:
        """Give the merges of each document; (g, n)."""
        return self.merges[self.which]


class _Solver:
    """A group with the inverse covariances of its choices."""

    def __init__(self, group: Group, whole: FloatArray):
        self.group = group
        parts = whole[group.merges[:, :, None], group.merges[:, None, :]]
        roots = np.linalg.cholesky(parts)
        self.logs = 2 * np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)  # (p,)
        self.inverses = np.asarray(np.linalg.inv(parts), np.float64)  # (p, n, n)

    def solve(self, values: FloatArray) -> FloatArray:
        """Multiply values (g, n) of each document by its inverse; (g, n)."""
        if len(self.inverses) == 1:
            return np.asarray(values @ self.inverses[0])
        inverses = self.inverses[self.group.which]
        return np.asarray((inverses @ values[:, :, None])[:, :, 0])

    def add_inverses(self, total: FloatArray, weights: FloatArray) -> None:
        """Add up the inverses, weighted by document (g,), at their merges in total."""
        group = self.group
        heavy = np.bincount(group.which, weights, len(group.merges))
        _add(total, group.merges, heavy[:, None, None] * self.inverses)


def _add(total: FloatArray, merges: IntArray, parts: FloatArray) -> None:
    """Add blocks (p, n, n) to a matrix, where merges (p, n) have their rows."""
    size = len(total)
    places = merges[:, :, None] * size + merges[:, None, :]
    sums = np.bincount(places.ravel(), parts.ravel(), size * size)
    total += sums.reshape(size, size)


def grouped(Z: FloatArray, asked: BoolArray) -> list[Group]:
    """Group documents (M, D) by the merges they were asked at, and by their number."""
    packed = np.ascontiguousarray(np.packbits(asked, axis=0).T)
    keys = packed.view(f"V{packed.shape[1]}").ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    choices = asked[:, first].T
    counts, found = choices.sum(axis=1), []
    for n in np.unique(counts[counts > 0]):
        chosen = np.flatnonzero(counts == n)
        size = max(int(_CHUNK // n**2), 1)
        for start in range(0, len(chosen), size):
            part = chosen[start : start + size]
            merges = np.nonzero(choices[part])[1].reshape(-1, n)
            place = np.full(len(choices), -1)
            place[part] = np.arange(len(part))
            documents = np.flatnonzero(place[which] >= 0)
            own = place[which[documents]]
            values = Z[merges[own], documents[:, None]]
            found.append(Group(documents, merges, own, values))
    return found


def _weights(n: int, distance: FloatArray) -> FloatArray:
    """Give what the precisions of documents with n values are expected to be."""
    n -= 1  # the constant is free
    return np.asarray((_FREEDOM + n) / (_FREEDOM - 2 + distance))


class Level:
    """The level at the merges and at the last place of U (M + 1, d), and what follows.

    With A the sum over documents of their inverse covariances and K the covariance of
    the level, that of its error is ``(1/K + A)^-1 = K (1 + A K)^-1``.
    """

    def __init__(self, U: FloatArray, theta: FloatArray, groups: list[Group]):
        self._theta, self._U = theta, U
        self._whole = Covariance(_rows(U[:-1]), theta).whole
        self._solvers = [_Solver(group, self._whole) for group in groups]
        prior = _smooth_covariance(U, theta)
        self._level = np.zeros(len(U))
        for _ in range(2):  # the scales of documents follow from the level
            A, pull = self._precision()
            self._error = prior @ np.linalg.inv(np.eye(len(U)) + A @ prior)
            self._level = self._error @ pull

    @property
    def at_merges(self) -> FloatArray:
        """Give the level at the merges, as a column (M, 1)."""
        return np.asarray(self._level[:-1, None])

    def _precision(self) -> tuple[FloatArray, FloatArray]:
        size = len(self._U)
        A, pull = np.zeros((size, size)), np.zeros(size)
        for solver in self._solvers:
            values, own = solver.group.values, solver.group.own
            away = values - self._level[own]
            distance = (solver.solve(away) * away).sum(axis=1)
            weights = _weights(own.shape[1], distance)
            pulls = weights[:, None] * solver.solve(values)
            pull += np.bincount(own.ravel(), pulls.ravel(), size)
            solver.add_inverses(A, weights)
        return A, pull

    def krige(self, scale: float, size: int) -> Kriged:
        """Foresee ``size`` documents at the last place, in units of 1/scale."""
        rows = _rows(self._U[:-1])
        [link] = covariance_to(rows, self._theta, self._U[-1:])
        prior = float(Covariance(_rows(self._U[-1:]), self._theta).whole[0, 0])
        mean, variance = np.full(size, np.nan), np.full(size, np.nan)
        used = np.zeros(len(self._U))
        for solver in self._solvers:
            group, own = solver.group, solver.group.own
            to = link[group.merges]  # (p, n)
            pull = (solver.inverses @ to[:, :, None])[:, :, 0]
            left = np.maximum(prior - (pull * to).sum(axis=1), 1e-12)[group.which]
            pull = pull[group.which]
            away = group.values - self._level[own]
            mean[group.documents] = (pull * away).sum(axis=1) + self._level[-1]
            distance = (solver.solve(away) * away).sum(axis=1)
            variance[group.documents] = left / _weights(own.shape[1], distance)
            used -= np.bincount(own.ravel(), pull.ravel(), len(used))
        used /= max(int(np.isfinite(mean).sum()), 1)
        used[-1] = 1.0
        common = math.sqrt(max(float(used @ self._error @ used), 0.0))
        return Kriged(scale * mean, scale * np.sqrt(variance), scale * common)


def _smooth_covariance(U: FloatArray, theta: FloatArray) -> FloatArray:
    """Give the covariance of the level: no constant, no noise."""
    widths = term_widths(U.shape[1], theta)
    terms = (quadratic_features(U) * widths)[:, 1:]
    return np.asarray(terms @ terms.T + process_covariance(U, U, theta))


def _climb(U: FloatArray, start: FloatArray, groups: list[Group]) -> FloatArray:
    """Find the most probable theta of documents' own parts."""
    rows, d = _rows(U), U.shape[1]
    belief = _start(d)
    vagueness = np.concatenate([_VAGUENESS, np.full(d, _VAGUE_LENGTH)])

    def surprise(theta: FloatArray) -> tuple[float, FloatArray]:
        covariance = Covariance(rows, theta)
        away = (theta - belief) / vagueness
        try:
            value, outer = _surprise(covariance.whole, groups)
        except np.linalg.LinAlgError:
            return 1e12, np.zeros_like(theta)
        slopes = covariance.slopes(outer) / 2 + away / vagueness
        return value + float(away @ away) / 2, slopes

    ends = [(_LEAST, _MOST)] * LENGTHS + [(-1.5, 2.0)] * d
    return np.asarray(find_minimum(surprise, start, ends, most=_STEPS).x)


def _surprise(whole: FloatArray, groups: list[Group]) -> tuple[float, FloatArray]:
    """Give minus the log likelihood, up to a constant, and twice its slopes."""
    outer, value = np.zeros_like(whole), 0.0
    for group in groups:
        solver, n = _Solver(group, whole), group.merges.shape[1]
        pulls = solver.solve(group.values)
        distance = (pulls * group.values).sum(axis=1)
        value += float(solver.logs[group.which].sum()) / 2
        logs = np.log1p(distance / (_FREEDOM - 2))
        value += (_FREEDOM + n - 1) / 2 * float(logs.sum())
        solver.add_inverses(outer, np.ones(len(pulls)))
        weighted = -pulls * _weights(n, distance)[:, None]
        _add(outer, group.own, weighted[:, :, None] * pulls[:, None, :])
    return value, outer


def _representatives(asked: BoolArray) -> IntArray:
    """Take documents from all over the list, as many as there is time for."""
    counts = asked.sum(axis=0)
    known = np.flatnonzero(counts)
    golden = (np.arange(len(known)) * 0.6180339887498949) % 1.0
    order = known[np.argsort(golden)]
    cost = (10.0 + counts[order]) ** 3
    return np.sort(order[np.cumsum(cost) <= max(_EFFORT, cost[:8].sum())])
