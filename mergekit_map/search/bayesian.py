"""Bayesian MAP: rounds of merges where quadratic surrogates err most.

The appendix of the paper, algorithm 2. Notation: ``n`` evaluated merges, ``d``
coefficients, ``m`` tasks, ``K`` bins, ``bounds`` (d, 2) of the coefficients. Directions
start at the lower corner of the bounds, in units of their widths: hyperspherical
coordinates of ``(x - lower) / width``, d - 1 angles, each from 0 to pi/2.

The paper leaves open, and we decide: how many bins (``BINS_PER_ANGLE``); the score of
an empty bin (the largest of the others, so that it is explored); how scores become
probabilities (softmax of the scores in units of the largest one, at ``TEMPERATURE``);
how errors of several tasks become one (``squared_errors``); and the radius of a new
point (uniform up to the side of the bounds in its direction).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mergekit_map.errors import DesignError
from mergekit_map.optimize.design import make_design
from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.search.study import Candidate, Rounds, Study
from mergekit_map.surrogates.arrays import (
    FloatArray,
    IntArray,
    from_unit,
    is_constant,
    to_unit,
)
from mergekit_map.surrogates.quadratic import n_quadratic_terms

N_START = 6  # uniform points of the first round: the paper's n_0
N_ROUND = 3  # points of every round after it: n_j
MAX_COEFFICIENTS = 3
DROPPED = 0.2  # share of a bin's points that each bootstrap leaves out: alpha
N_BOOTSTRAPS = 30  # Q
# By d; 1, 6 and 9 bins in all, so that the points of the first round fill most of them.
BINS_PER_ANGLE = {1: 1, 2: 6, 3: 3}
# A bin without any error is drawn exp(-1 / TEMPERATURE), about 1/7, as often as the
# worst one.
TEMPERATURE = 0.5


def bayesian_round(
    study: Study, rounds: Rounds, known: Sequence[Evaluation], n_spent: int
) -> list[Candidate]:
    """Propose the merges of the next round, none at the end, or raise DesignError."""
    start = _start(study)
    wanted = study.search.evaluations or len(start) + 2 * N_ROUND
    if not rounds:
        if wanted < len(start):
            raise DesignError(
                f"bayesian starts with {len(start)} merges, with the reference points, "
                f"but only {wanted} evaluations were asked for; allow more, better "
                f"{len(start) + 2 * N_ROUND}, or use map"
            )
        return start
    if (count := min(N_ROUND, wanted - n_spent)) <= 0:
        return []
    rng = np.random.default_rng([study.search.seed, len(rounds)])
    merges = by_merge(known)
    X, measured = study.vectors(map(dict, merges)), study.utilities(merges.values())
    # Quadratics, as in the paper. A Gaussian process would go through the measurements
    # and have no errors there.
    errors = squared_errors(measured, study.predict(study.fit(known, "regularized"), X))
    points = propose_points(X, errors, study.box, count, rng)
    return [("design", study.rounded(row)) for row in points]


def _start(study: Study) -> list[Candidate]:
    """Propose the first round: the reference points, then uniform points."""
    anchors = study.vectors({merge_key(c): c for c in study.fixed.values()}.values())
    n_new = N_START
    if study.search.surrogate == "quadratic":
        # The paper's 6 may leave a quadratic in 3 coefficients under-determined where
        # few anchors lie within the bounds. Other surrogates have priors.
        n_fitted = int(study.contains(anchors).sum())
        n_new = max(N_START, n_quadratic_terms(len(study.bounds)) - n_fitted)
    rng = np.random.default_rng([study.search.seed, 0])
    points = make_design("uniform", len(anchors) + n_new, study.box, anchors, rng)
    return study.candidates(points)


def propose_points(
    X: FloatArray,
    errors: FloatArray,
    bounds: FloatArray,
    count: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw the points of a round where the surrogates err most; (count, d).

    ``X`` (n, d) has the evaluated merges, 1 <= d <= 3, and rows outside the box belong
    to no bin. ``errors`` (n,) are the squared errors of the surrogates there, NaN where
    unknown. At least one point is drawn. The generator is that of the bootstrap, then
    of the draws: with an equal one a larger count starts with the points of a smaller.
    """
    d = len(bounds)
    scores = bin_scores(bin_of(X, bounds), errors, n_bins(d), rng)
    weights = np.exp((scores / (scores.max() or 1.0) - 1) / TEMPERATURE)
    probabilities = weights / weights.sum()
    points = []
    for _ in range(count):  # one by one, so that other counts share their first points
        points.append(_draw_in(int(rng.choice(n_bins(d), p=probabilities)), d, rng))
    return from_unit(np.array(points), bounds)


def n_bins(d: int) -> int:
    """Return the number of angular bins of d coefficients."""
    return int(BINS_PER_ANGLE[d] ** (d - 1))


def bin_of(X: FloatArray, bounds: FloatArray) -> IntArray:
    """Return the angular bin of every row of X (n, d); (n,).

    -1 for rows outside the bounds and for their lower corner, which has no direction.
    An angle that the others leave undefined counts as 0.
    """
    U = to_unit(X, bounds)
    d = len(bounds)
    per_angle = BINS_PER_ANGLE[d]
    angles = [
        np.arctan2(np.linalg.norm(U[:, k + 1 :], axis=1), U[:, k]) for k in range(d - 1)
    ]
    shares = np.reshape(angles, (d - 1, len(U))).T / (np.pi / 2)  # (n, d - 1)
    steps = np.minimum((shares * per_angle).astype(int), per_angle - 1)
    index = steps @ per_angle ** np.arange(d - 2, -1, -1)  # see ``np.unravel_index``
    return np.where(((U < 0) | (U > 1)).any(axis=1) | ~U.any(axis=1), -1, index)


def bin_scores(
    bins: IntArray, errors: FloatArray, n: int, rng: np.random.Generator
) -> FloatArray:
    """Score every bin: mean squared error + half its bootstrapped standard deviation.

    A bin of one point has no deviation, as nothing can be left out; a bin without a
    point has the largest score of the others, or 0 where none has one. Returns (n,).
    """
    scores = np.full(n, np.nan)
    for index in range(n):
        inside = errors[(bins == index) & ~np.isnan(errors)]
        if len(inside):
            kept = max(1, len(inside) - int(np.ceil(DROPPED * len(inside))))
            draws = (
                rng.choice(inside, kept, replace=False) for _ in range(N_BOOTSTRAPS)
            )
            scores[index] = inside.mean() + np.std([draw.mean() for draw in draws]) / 2
    known = scores[~np.isnan(scores)]
    return np.where(np.isnan(scores), known.max() if len(known) else 0.0, scores)


def squared_errors(measured: FloatArray, predicted: FloatArray) -> FloatArray:
    """Average the squared errors of the tasks, each in units of its variance.

    Tasks have different units; the variance is that of what was measured (n, m), NaN
    where a task failed. A task that is constant counts for nothing. Returns (n,), NaN
    where no task was measured.
    """
    totals = np.zeros(len(measured))
    n_known = np.zeros(len(measured))
    for values, guesses in zip(measured.T, predicted.T, strict=True):
        is_known = np.isfinite(values)
        n_known += is_known
        known = values[is_known]
        if len(known) and not is_constant(known):
            totals[is_known] += (values - guesses)[is_known] ** 2 / known.var()
    return np.where(n_known > 0, totals / np.maximum(n_known, 1), np.nan)


def _draw_in(index: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Draw a point of the unit box in a bin, uniform in its angles and its radius."""
    per_angle = BINS_PER_ANGLE[d]
    steps = np.array(np.unravel_index(index, [per_angle] * (d - 1)))
    angles = (steps + rng.random(d - 1)) / per_angle * (np.pi / 2)
    # x_k = sin(a_1) ... sin(a_(k-1)) cos(a_k), and the last has no cosine.
    sines = np.concatenate([[1.0], np.cumprod(np.sin(angles))])
    direction = sines * np.concatenate([np.cos(angles), [1.0]])
    # Divided by its largest entry, a direction ends at a side of the unit box.
    return np.asarray(rng.random() * direction / direction.max(), dtype=np.float64)
