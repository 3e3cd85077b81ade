"""What a comparison says of a search and its rivals, from what was measured of them.

Notation: ``m`` tasks, ``Y`` (k, m) measured metrics, larger is better; ``P``
preferences (P, m), each adds up to 1. Measurements that failed are NaN in what comes
in, and rows with one count for nothing.

The paper's section 4 and its appendix, on the measures of ``search.indicators``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mergekit_map.compare.indicators import (
    generational_distance,
    hypervolume,
    inverted_generational_distance,
    mean_distance,
    mean_inverted_distance,
    preference_weighted_sums,
    r_squared,
    win_rate,
)
from mergekit_map.errors import EvaluationError
from mergekit_map.search.nsga import non_dominated
from mergekit_map.search.surrogate import Surrogate

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int_]

DRAWS = 100  # points of each front in a win rate: the paper's K
REPEATS = 10  # of a win rate; the paper does not say what its ± is over


@dataclass(frozen=True, eq=False)
class Found:
    """What a search found, and how many merges it evaluated for it."""

    front: FloatArray  # (k, m)
    evaluations: int


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
    """Find what no other dominates among all that was measured, each once; (k, m).

    Raises:
        EvaluationError: everything failed.
    """
    Y = np.vstack(measured)
    front = np.unique(Y[non_dominated(Y)], axis=0)
    if len(front) == 0:
        raise EvaluationError(
            f"all {len(Y)} merges failed on some task, so there is no front to compare "
            "with; see the errors in evaluations.jsonl"
        )
    return front


def score_front(
    found: Found, reference: FloatArray, direct: FloatArray
) -> dict[str, float]:
    """Measure a front against a reference, and against that of the direct search.

    In units of the reference's ideal and nadir.
    """
    scale = by_ideal_and_nadir(reference)
    front, whole, other = map(scale.apply, (found.front, reference, direct))
    return {
        "evaluations": found.evaluations,
        "points": len(front),
        "hypervolume": hypervolume(found.front, reference),
        "gd": generational_distance(front, whole),
        "igd": inverted_generational_distance(front, whole),
        "gd_pymoo": mean_distance(front, whole),
        "igd_pymoo": mean_inverted_distance(front, whole),
        "gd_direct": generational_distance(front, other),
        "igd_direct": inverted_generational_distance(front, other),
    }


def repeated_win_rate(
    ours: FloatArray, theirs: FloatArray, rng: np.random.Generator
) -> dict[str, float]:
    """Draw the win rate of our front over another one ``REPEATS`` times."""
    return mean_and_std([win_rate(ours, theirs, rng, DRAWS) for _ in range(REPEATS)])


def unseen_r_squared(
    surrogates: Mapping[str, Surrogate], X: FloatArray, values: FloatArray
) -> dict[str, float]:
    """Hold every surrogate against merges that it was not fitted to.

    Args:
        surrogates: In the order of the columns of ``values``.
        X: (k, d) coefficients.
        values: (k, m) what was measured there, in the tasks' own units.

    Returns:
        R² by task; NaN where nothing was measured, or always the same.
    """
    found = {}
    for (task, surrogate), y in zip(surrogates.items(), values.T, strict=True):
        known = ~np.isnan(y)
        predicted = surrogate.predict(X[known])
        found[task] = r_squared(y[known], predicted) if known.any() else np.nan
    return found


def best_merges(Y: FloatArray, preferences: FloatArray, scale: Scale) -> IntArray:
    """Find the row with the best weighted sum for every preference; (P,).

    Of rows without NaN; ValueError if there is none.
    """
    known = np.flatnonzero(~np.isnan(Y).any(axis=1))
    sums = preference_weighted_sums(scale.apply(Y[known]), preferences)
    chosen: IntArray = known[sums.best]
    return chosen


def best_rows(Y: FloatArray, preferences: FloatArray, scale: Scale) -> FloatArray:
    """Give every preference the best merge by its weighted sum, as measured; (P, m).

    NaN if every row has one.
    """
    if np.isnan(Y).any(axis=1).all():
        return np.full(preferences.shape, np.nan)
    return Y[best_merges(Y, preferences, scale)]


def weighted_sums(Y: FloatArray, preferences: FloatArray, scale: Scale) -> FloatArray:
    """Add up what each preference gets (P, m), weighted by it; (P,)."""
    sums: FloatArray = (scale.apply(Y) * preferences).sum(axis=1)
    return sums


def preferred_models(
    preferences: FloatArray, owners: IntArray, count: int
) -> FloatArray:
    """Turn preferences among tasks into shares of models; (P, count).

    A model has the shares of the tasks it owns, ``owners`` (m,). With one task per
    model these are the preferences themselves, as in the paper.
    """
    owned = owners == np.arange(count)[:, None]  # (count, m)
    shares: FloatArray = preferences @ owned.T.astype(np.float64)
    return shares


def mean_and_std(values: Sequence[float] | FloatArray) -> dict[str, float]:
    """Summarise numbers; NaN if one of them is, or none is there."""
    if len(values) == 0:
        return {"mean": math.nan, "std": math.nan}
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}
