"""The design of the search: which coefficients to evaluate (algorithm 1, step 2).

Notation: ``n`` evaluations, ``d`` coefficients, ``bounds`` (d, 2) lower and upper
bounds of the box, ``anchors`` (a, d) points evaluated in any case. The paper draws
uniformly; Sobol points are ours. A metric of one recipe is deterministic, so a
second evaluation of a point adds nothing: no design repeats a point, and points nearer
to each other than 1e-12 of the box's width count as one.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray, from_unit, to_unit

_N_FIXED = 256  # Sobol points that are always the same
_SAME_DIGITS = 12  # in widths of the box, of points that count as one


def make_design(
    kind: str, n: int, bounds: FloatArray, anchors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Choose n distinct points: the anchors in order, then new ones of the box; (n, d).

    ``kind`` is "sobol" or "uniform". The ``bounds`` (d, 2) are finite and rise; anchors
    (a, d), a >= 0, may lie beyond them. The same ``rng`` and anchors start a design of
    a larger n with the rows of a smaller n, so a search can be extended. Raises
    DesignError for n below the number of anchors.
    """
    design = _distinct(anchors, bounds)
    if n < len(design):
        raise DesignError(
            f"{len(design)} reference points are always evaluated, but only {n} "
            f"evaluations were asked for; allow at least {len(design) - n} more"
        )
    d = len(bounds)
    # n new points, more than needed, as each anchor may equal one of them.
    U = rng.random((n, d)) if kind == "uniform" else draw_sobol(n, d, rng)
    return _distinct(np.vstack([design, from_unit(U, bounds)]), bounds)[:n]


def draw_sobol(n: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Draw at least n scrambled Sobol points, a power of two; (at least n, d)."""
    exponent = (n - 1).bit_length()
    return np.asarray(qmc.Sobol(d, seed=rng).random_base2(exponent), dtype=np.float64)


def fixed_sobol(bounds: FloatArray) -> FloatArray:
    """Return the first Sobol points of a box (d, 2), always the same; (n, d)."""
    return from_unit(qmc.Sobol(len(bounds), scramble=False).random(_N_FIXED), bounds)


def _distinct(points: FloatArray, bounds: FloatArray) -> FloatArray:
    """Return the points (k, d) that repeat none before them, in their order."""
    rounded = np.round(to_unit(points, bounds), _SAME_DIGITS)
    _, first_indices = np.unique(rounded, axis=0, return_index=True)
    return points[np.sort(first_indices)]
