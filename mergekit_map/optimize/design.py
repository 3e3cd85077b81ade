"""The design of the search: which coefficients to evaluate (algorithm 1, step 2).

Notation: ``n`` evaluations, ``d`` coefficients, ``bounds`` (d, 2) lower and upper
bounds of the box, ``anchors`` (a, d) points evaluated in any case. The paper draws
uniformly; the other kinds are ours. A metric of one recipe is deterministic, so a
second evaluation of a point adds nothing: no design repeats a point, and points nearer
to each other than ``SAME_POINT`` of the box's width count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from scipy.stats import qmc

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray, from_unit, inside, to_unit
from mergekit_map.surrogates.quadratic import n_quadratic_terms, quadratic_features

# (count, bounds, anchors, rng) -> at most count new points of the box, (k, d).
Sampler: TypeAlias = Callable[
    [int, FloatArray, FloatArray, np.random.Generator], FloatArray
]

SAME_POINT = 1e-12
# The D-optimal candidates beside the 3-level grid, and the largest d that has a grid.
SOBOL_CANDIDATES = 1024
GRID_CANDIDATES_MAX_D = 6
TIE = 1e-9  # gains of log det(F'F) nearer than this are equal


def make_design(
    kind: str, n: int, bounds: FloatArray, anchors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Choose the points to evaluate: the distinct anchors, then new points of the box.

    With an equal generator and equal anchors, "uniform", "sobol" and "d_optimal" of a
    larger n start with the rows of a smaller n, so a search can be extended.
    "latin_hypercube" and "grid" are laid out for their n and are not nested.

    Args:
        kind: One of ``DESIGNS``.
        n: How many points in all, anchors included.
        bounds: (d, 2) lower and upper ends, finite, the lower one smaller.
        anchors: (a, d) points kept in their order, in the box or not; duplicates are
            dropped. May be empty: (0, d).
        rng: Drawn from by every kind but "grid".

    Returns:
        (n, d) distinct points; for "grid" possibly fewer, as a full grid has
        ``levels ** d``.

    Raises:
        DesignError: n is below the number of anchors or of points of a 3-level grid.
    """
    kept = _new_points(anchors, anchors[:0], bounds)
    if n < len(kept):
        raise DesignError(
            f"{len(kept)} reference points are always evaluated, but only {n} "
            f"evaluations were asked for; allow at least {len(kept) - n} more"
        )
    return np.vstack([kept, DESIGNS[kind](n - len(kept), bounds, kept, rng)])


def even_points(n: int, bounds: FloatArray) -> FloatArray:
    """Return the first n Sobol points of a box (d, 2), always the same; (n, d)."""
    return from_unit(qmc.Sobol(len(bounds), scramble=False).random(n), bounds)


def _uniform(
    count: int, bounds: FloatArray, anchors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    return _first_new(lambda k: rng.random((k, len(bounds))), count, bounds, anchors)


def _sobol(
    count: int, bounds: FloatArray, anchors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    engine = qmc.Sobol(len(bounds), seed=rng)

    def draw(k: int) -> FloatArray:
        # Whole powers of two keep SciPy from warning; the surplus is cut off later,
        # which leaves the beginning of the one sequence whatever the count.
        return np.asarray(engine.random(1 << (k - 1).bit_length()), dtype=np.float64)

    return _first_new(draw, count, bounds, anchors)


def _latin_hypercube(
    count: int, bounds: FloatArray, anchors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    draw = qmc.LatinHypercube(len(bounds), seed=rng).random
    return _first_new(draw, count, bounds, anchors)


def _d_optimal(
    count: int, bounds: FloatArray, anchors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Choose from the 3-level grid, where there is one, and Sobol points.

    At the points of the grid optimal quadratic designs lie. The number of candidates
    grows with the points chosen so far, never with n: that keeps designs nested.
    """
    d = len(bounds)
    engine = qmc.Sobol(d, seed=rng)
    grid = _box_grid(3 if d <= GRID_CANDIDATES_MAX_D else 0, bounds)
    candidates = np.vstack([grid, from_unit(engine.random(SOBOL_CANDIDATES), bounds)])
    candidates = _new_points(candidates, anchors, bounds)
    known = anchors
    while missing := len(anchors) + count - len(known):
        room = max(1, len(candidates) - SOBOL_CANDIDATES // 2)
        more = _most_informative(min(room, missing), bounds, known, candidates)
        known = np.vstack([known, more])
        fresh = from_unit(engine.random(SOBOL_CANDIDATES), bounds)
        candidates = _new_points(np.vstack([candidates, fresh]), known, bounds)
    return known[len(anchors) :]


def _most_informative(
    count: int, bounds: FloatArray, known: FloatArray, candidates: FloatArray
) -> FloatArray:
    """Choose, one at a time, the candidate that most increases det(F'F).

    The rows of F are the features of the quadratic. The determinant grows by the factor
    1 + f'(F'F)^-1 f, so the best candidate is the one the points so far predict worst.
    Choices are nested: more begin with the fewer.

    Args:
        count: How many to choose, at most as many as there are candidates.
        bounds: (d, 2) the box; known points outside of it tell nothing, as they are
            not fitted.
        known: (k, d) points that are evaluated in any case.
        candidates: (c, d) distinct points to choose from.

    Returns:
        (count, d) candidates in the order chosen.
    """

    def features(X: FloatArray) -> FloatArray:
        # D-optimality does not depend on the scale; the rounding does.
        return quadratic_features(2 * to_unit(X, bounds) - 1)

    seen, rows = features(known[inside(known, bounds)]), features(candidates)
    # Until there are as many rows as parameters F'F is singular. A ridge this small
    # ranks directions not seen yet before all others, then plays no part any more.
    inverse = np.linalg.inv(seen.T @ seen + 1e-6 * np.eye(seen.shape[1]))
    left = np.full(len(candidates), fill_value=True)
    chosen = []
    for _ in range(count):
        spread = ((rows @ inverse) * rows).sum(axis=1)
        # Symmetric candidates tie up to rounding: the first of them wins.
        gain = np.where(left, np.log1p(spread), -np.inf)
        best = int(np.argmax(gain >= gain.max() - TIE))
        chosen.append(best)
        left[best] = False
        update = rows[best] @ inverse  # (t,)
        inverse = inverse - np.outer(update, update) / (1 + spread[best])
    return candidates[chosen]


def _grid(
    count: int,
    bounds: FloatArray,
    anchors: FloatArray,
    rng: np.random.Generator,  # noqa: ARG001  # a sampler like the others
) -> FloatArray:
    d, n = len(bounds), count + len(anchors)
    levels = 3
    if levels**d > 2 * n + levels:  # it is not laid out only to be counted
        raise DesignError(
            f"a grid of 3 levels in {d} coefficients has {levels**d} merges, but only "
            f"{n} evaluations were asked for; use another design (d_optimal needs "
            f"{n_quadratic_terms(d)})"
        )
    points = _new_points(_box_grid(levels, bounds), anchors, bounds)
    if len(points) > count:
        raise DesignError(
            f"a grid identifies a quadratic only with 3 levels or more per "
            f"coefficient, which needs {len(points) + len(anchors)} evaluations with "
            f"reference points in {d} coefficients, but only {n} were asked for; allow "
            f"{len(points) - count} more, or use another design (d_optimal needs "
            f"{n_quadratic_terms(d)})"
        )
    # A finer grid may share more points with the anchors and fit where a coarser one
    # does not; no grid of more than n points can fit.
    while (levels + 1) ** d <= n:
        levels += 1
        finer = _new_points(_box_grid(levels, bounds), anchors, bounds)
        if len(finer) <= count:
            points = finer
    return points


def _box_grid(levels: int, bounds: FloatArray) -> FloatArray:
    axes = [np.linspace(lower, upper, levels) for lower, upper in bounds]
    mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1, dtype=np.float64)
    return mesh.reshape(-1, len(bounds))


def _first_new(
    draw: Callable[[int], FloatArray],
    count: int,
    bounds: FloatArray,
    anchors: FloatArray,
) -> FloatArray:
    """Draw points of the unit cube until ``count`` are new; keep their order."""
    found = anchors[:0]
    while len(found) < count:
        points = from_unit(draw(count - len(found)), bounds)
        fresh = _new_points(points, np.vstack([anchors, found]), bounds)
        found = np.vstack([found, fresh])
    return found[:count]


def _new_points(
    points: FloatArray, known: FloatArray, bounds: FloatArray
) -> FloatArray:
    """Return the rows of ``points`` that are not in ``known`` nor earlier in itself."""
    digits = -round(np.log10(SAME_POINT))

    def keys(rows: FloatArray) -> list[tuple[float, ...]]:
        rounded = np.round(to_unit(rows, bounds), digits)
        return [tuple(row) for row in rounded.tolist()]

    first = dict.fromkeys(keys(known), -1)
    fresh = [i for i, key in enumerate(keys(points)) if first.setdefault(key, i) == i]
    return points[fresh]


DESIGNS: Mapping[str, Sampler] = {
    "uniform": _uniform,
    "sobol": _sobol,
    "latin_hypercube": _latin_hypercube,
    "d_optimal": _d_optimal,
    "grid": _grid,
}
