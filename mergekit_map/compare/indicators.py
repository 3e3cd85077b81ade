"""Quality indicators of fronts and of surrogates (the paper's section 4, its appendix).

Notation: ``n`` points of a front, ``m`` tasks, ``Y`` (n, m) or (k, m) measured metrics,
larger is better; ``P`` preferences (P, m), each of sum 1. A front may have dominated
points: everything that was found counts.

Fronts are not empty, and finite: callers drop failed merges first. In the functions
that compare a search with its opponents a failed measurement is NaN, and rows with one
are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from mergekit_map.errors import EvaluationError
from mergekit_map.optimize import front_filling
from mergekit_map.surrogates.arrays import FloatArray, IntArray, ranges

# The hypervolume's reference point, between a front's ideal (0) and its nadir (1).
REFERENCE_POINT = 1.1
DIRECTIONS = 2**18  # of a hypervolume of more tasks than have an exact one


@dataclass(frozen=True)
class Spread:
    """A mean and a standard deviation."""

    mean: float
    std: float


def win_rate(ours: FloatArray, theirs: FloatArray) -> float:
    """Return the share of pairs of points, on each task, that ours wins (section 4.1).

    The paper compares points drawn from each, and counts ties as lost; we count them
    half, so that a front ties with itself and the rates of the two sides sum to 1.
    """
    one, other = ours[:, None], theirs
    return float((one > other).mean() + (one == other).mean() / 2)


def generational_distance(front: FloatArray, reference: FloatArray) -> float:
    """Return the generational distance to a reference, as the paper's appendix.

    GD = sqrt(sum of squared distances to the nearest reference point) / n, which
    shrinks with n, in the metrics' own units: normalise different ones first. With the
    two exchanged it is the inverted distance.
    """
    nearest = cdist(front, reference).min(axis=1)
    return float(np.linalg.norm(nearest) / len(nearest))


def hypervolume(front: FloatArray, reference: FloatArray) -> float:
    """Return a front's hypervolume as a share of that of a reference front.

    Tasks are scaled by the reference's ideal (0) and nadir (1); one that is constant
    there keeps its unit. Volumes reach to 1.1, so that the ends of a front count; what
    lies beyond adds nothing. Points better than the ideal count in full: the share may
    exceed 1. Exact up to 5 tasks; beyond, the deterministic approximation of moocore
    (off by about 0.0005 of the value with 8 tasks).
    """
    ideal, width = reference.max(axis=0), ranges(reference)
    part, whole = (
        front_filling.hypervolume((Y - ideal) / width, -REFERENCE_POINT, DIRECTIONS)
        for Y in (front, reference)
    )
    return part / whole


def draw_preferences(n_tasks: int, rng: np.random.Generator, n: int) -> FloatArray:
    """Draw n preferences, (n, n_tasks): uniform in [0, 1), then normalised to sum 1.

    The paper says that its 20 are normalised, not how they are drawn.
    """
    weights = rng.random((n, n_tasks))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class FrontScores:
    """The quality of a search's front, scaled by the reference's ideal and nadir."""

    evaluations: int  # merges that the search evaluated
    points: int
    hypervolume: float
    gd: float
    igd: float
    win_rate: float | None = None  # of our front over this one
    # Of the front of the merges that our search itself evaluated, over this one.
    win_rate_paid: float | None = None


@dataclass(frozen=True)
class ComparedRun:
    """A search and its rivals."""

    name: str
    models: int
    tasks: Sequence[str]
    # Of the joint front of all searches, by task.
    ideal: Sequence[float]
    nadir: Sequence[float]
    fronts: Mapping[str, FrontScores]
    # Of the surrogates on merges that they were not fitted to, by task.
    r2: Mapping[str, float]
    preference_vectors: Sequence[Sequence[float]]
    # The weighted sum of each preference, by method.
    methods: Mapping[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The content of ``comparison.json``."""

    version: int = 2
    preferences: int
    seed: int
    unit: Literal["percent", "scaled"]
    runs: Sequence[ComparedRun]


def scaled(Y: FloatArray, reference: FloatArray) -> FloatArray:
    """Scale metrics (k, m) from each task's nadir to its ideal on a reference (r, m).

    A task that is constant over the reference keeps its unit.
    """
    return np.asarray((Y - reference.min(axis=0)) / ranges(reference))


def front_of(*measured: FloatArray) -> FloatArray:
    """Return the non-dominated rows of all that was measured, each once; (k, m)."""
    Y = np.vstack(measured)
    front = np.unique(Y[front_filling.non_dominated(Y)], axis=0)
    if len(front) == 0:
        raise EvaluationError(
            f"all {len(Y)} merges failed on some task, so there is no front to compare "
            "with; see the errors in evaluations.jsonl"
        )
    return front


def best_merges(
    Y: FloatArray, preferences: FloatArray, reference: FloatArray
) -> IntArray:
    """Find the row with the best weighted sum for every preference; (P,).

    Of rows without NaN, the first of equal ones; the first of all if there is none.
    """
    sums = preferences @ scaled(Y, reference).T
    return np.asarray(np.where(np.isnan(Y).any(axis=1), -np.inf, sums).argmax(axis=1))


def weighted_sums(
    Y: FloatArray, preferences: FloatArray, reference: FloatArray
) -> FloatArray:
    """Return the weighted sum of each preference's row (P, m), or of one row (m,)."""
    return np.asarray((scaled(Y, reference) * preferences).sum(axis=1))


def preferred_models(preferences: FloatArray, owners: IntArray, n: int) -> FloatArray:
    """Convert preferences among tasks to shares of n models; (P, n).

    A model has the shares of the tasks it owns, ``owners`` (m,). With one task per
    model these are the preferences themselves, as in the paper.
    """
    owned = owners == np.arange(n)[:, None]  # (n, m)
    return np.asarray(preferences @ owned.T.astype(np.float64))


def mean_and_std(values: Sequence[float] | FloatArray) -> Spread:
    """Return mean and standard deviation; NaN for none, or if one is NaN."""
    if len(values) == 0:
        return Spread(np.nan, np.nan)
    return Spread(float(np.mean(values)), float(np.std(values)))
