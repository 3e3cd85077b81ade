"""The design of the search: which coefficients to evaluate (algorithm 1, step 2).

Notation: ``n`` evaluations, ``d`` coefficients, ``bounds`` (d, 2) lower and upper
bounds of the box, ``anchors`` (a, d) points evaluated in any case. The paper draws
uniformly; Sobol points are ours. A metric of one recipe is deterministic, so a
second evaluation of a point adds nothing: no design repeats a point, and points nearer
to each other than ``SAME_POINT`` of the box's width count as one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import qmc

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray, from_unit, to_unit

SAME_POINT = 1e-12


def make_design(
    kind: str, n: int, bounds: FloatArray, anchors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Choose the points to evaluate: the distinct anchors, then new points of the box.

    With an equal generator and equal anchors, a design of a larger n starts with the
    rows of a smaller n, so a search can be extended.

    Args:
        kind: "sobol" or "uniform".
        n: How many points in all, anchors included.
        bounds: (d, 2) lower and upper ends, finite, the lower one smaller.
        anchors: (a, d) points kept in their order, in the box or not; duplicates are
            dropped. May be empty: (0, d).
        rng: What new points are drawn from.

    Returns:
        (n, d) distinct points.

    Raises:
        DesignError: n is below the number of anchors.
    """
    kept = _new_points(anchors, anchors[:0], bounds)
    if n < len(kept):
        raise DesignError(
            f"{len(kept)} reference points are always evaluated, but only {n} "
            f"evaluations were asked for; allow at least {len(kept) - n} more"
        )
    d = len(bounds)
    engine = qmc.Sobol(d, seed=rng) if kind == "sobol" else None

    def draw(k: int) -> FloatArray:
        if engine is None:
            return rng.random((k, d))
        # Whole powers of two keep SciPy from warning; the surplus is cut off later,
        # which leaves the beginning of the one sequence whatever the count.
        return np.asarray(engine.random(1 << (k - 1).bit_length()), dtype=np.float64)

    return np.vstack([kept, _first_new(draw, n - len(kept), bounds, kept)])


def even_points(n: int, bounds: FloatArray) -> FloatArray:
    """Return the first n Sobol points of a box (d, 2), always the same; (n, d)."""
    return from_unit(qmc.Sobol(len(bounds), scramble=False).random(n), bounds)


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
