"""What a comparison says of a search and its rivals, from what was measured of them.

Notation: ``m`` tasks, ``Y`` (k, m) measured metrics, larger is better; ``P``
preferences (P, m), each adds up to 1. Measurements that failed are NaN in what comes
in, and rows with one count for nothing.

The paper's section 4 and its appendix, on the measures of ``indicators.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from mergekit_map.compare.indicators import generational_distance, hypervolume
from mergekit_map.compare.tables import Spread
from mergekit_map.errors import EvaluationError
from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.dense import non_dominated

DRAWS = 100  # points of each front in a win rate: the paper's K
REPEATS = 10  # of a win rate; the paper does not say what its ± is over


@dataclass(frozen=True)
class FrontScores:
    """How good the front of a search is; scaled by the reference's ideal and nadir."""

    evaluations: int  # merges that the search evaluated
    documents: int  # of all tasks and merges, that it measured
    points: int
    hypervolume: float
    gd: float
    igd: float
    gd_direct: float
    igd_direct: float
    win_rate: Spread | None = None  # of our front over this one
    # Of the front of the merges that our search itself evaluated, over this one.
    win_rate_paid: Spread | None = None
    charged: int = 0  # merges that had to be measured for all that is shown


@dataclass(frozen=True)
class RSquared:
    """How well surrogates predict merges that they were not fitted to, by task."""

    tasks: Mapping[str, float]
    mean: float
    std: float


@dataclass(frozen=True)
class Sums:
    """What a method gives each preference, weighted by it."""

    sums: Sequence[float]
    mean: float
    std: float


@dataclass(frozen=True)
class Reference:
    """The front that all searches together found, and its ends by task."""

    points: int
    ideal: Sequence[float]
    nadir: Sequence[float]


@dataclass(frozen=True)
class ComparedRun:
    """A search and its rivals."""

    name: str
    models: int
    coefficients: Sequence[str]
    tasks: Sequence[str]
    reference: Reference
    fronts: Mapping[str, FrontScores]
    r2: RSquared
    preference_vectors: Sequence[Sequence[float]]
    methods: Mapping[str, Sums]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The content of ``comparison.json``."""

    version: int = 1
    budget: int  # merges of an opponent; where it follows the search, the most of a run
    preferences: int
    seed: int
    draws: int = DRAWS
    repeats: int = REPEATS
    unit: Literal["percent", "scaled"]
    runs: Sequence[ComparedRun]


@dataclass(frozen=True, eq=False)
class Scale:
    """In which units metrics are added up: ``zero`` and ``one`` (m,) stand for 0 and 1.

    A task that is constant over the reference keeps its unit.
    """

    zero: FloatArray
    one: FloatArray

    def apply(self, Y: FloatArray) -> FloatArray:
        """Scale metrics (k, m)."""
        width = self.one - self.zero
        return np.asarray((Y - self.zero) / np.where(width > 0, width, 1.0))


def as_they_are(m: int) -> Scale:
    """Leave metrics alone that are shares anyway."""
    return Scale(np.zeros(m), np.ones(m))


def by_ideal_and_nadir(reference: FloatArray) -> Scale:
    """Measure every task from its worst to its best value on a reference front."""
    return Scale(reference.min(axis=0), reference.max(axis=0))


def front_of(*measured: FloatArray) -> FloatArray:
    """Find what no other dominates among all that was measured, each once; (k, m)."""
    Y = np.vstack(measured)
    front = np.unique(Y[non_dominated(Y)], axis=0)
    if len(front) == 0:
        raise EvaluationError(
            f"all {len(Y)} merges failed on some task, so there is no front to compare "
            "with; see the errors in evaluations.jsonl"
        )
    return front


def score_front(
    front: FloatArray,
    reference: FloatArray,
    direct: FloatArray,
    evaluations: int,
    documents: int,
    charged: int,
) -> FrontScores:
    """Measure a front against a reference, and against that of the direct search."""
    scale = by_ideal_and_nadir(reference)
    scaled, whole, other = map(scale.apply, (front, reference, direct))
    return FrontScores(
        evaluations,
        documents,
        len(front),
        hypervolume(front, reference),
        gd=generational_distance(scaled, whole),
        igd=generational_distance(whole, scaled),
        gd_direct=generational_distance(scaled, other),
        igd_direct=generational_distance(other, scaled),
        charged=charged,
    )


def best_merges(Y: FloatArray, preferences: FloatArray, scale: Scale) -> IntArray:
    """Find the row with the best weighted sum for every preference; (P,).

    Of rows without NaN, the first of equal ones; ValueError if there is none.
    """
    known = np.flatnonzero(~np.isnan(Y).any(axis=1))
    sums = preferences @ scale.apply(Y[known]).T
    return np.asarray(known[sums.argmax(axis=1)])


def best_rows(Y: FloatArray, preferences: FloatArray, scale: Scale) -> FloatArray:
    """Give every preference the best merge by its weighted sum, as measured; (P, m).

    NaN if every row has one.
    """
    if np.isnan(Y).any(axis=1).all():
        return np.full(preferences.shape, np.nan)
    return Y[best_merges(Y, preferences, scale)]


def weighted_sums(Y: FloatArray, preferences: FloatArray, scale: Scale) -> Sums:
    """Add up what each preference gets (P, m), or all of them do (m,), weighted."""
    sums = (scale.apply(Y) * preferences).sum(axis=1)
    return Sums(sums.tolist(), **asdict(mean_and_std(sums)))


def preferred_models(
    preferences: FloatArray, owners: IntArray, count: int
) -> FloatArray:
    """Turn preferences among tasks into shares of models; (P, count).

    A model has the shares of the tasks it owns, ``owners`` (m,). With one task per
    model these are the preferences themselves, as in the paper.
    """
    owned = owners == np.arange(count)[:, None]  # (count, m)
    return np.asarray(preferences @ owned.T.astype(np.float64))


def mean_and_std(values: Sequence[float] | FloatArray) -> Spread:
    """Summarise numbers; NaN if one of them is, or none is there."""
    if len(values) == 0:
        return Spread(math.nan, math.nan)
    return Spread(float(np.mean(values)), float(np.std(values)))
