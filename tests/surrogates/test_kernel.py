"""The minimum of a function whose value and slopes are computed together."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.minimize import find_minimum

BOUNDS = [(-2.0, 2.0), (-1.0, 0.5), (-2.0, 2.0)]


def valley(point: FloatArray) -> tuple[float, FloatArray]:
    """Rosenbrock's function, whose minimum at 1 the bounds keep out."""
    rise, far = point[1:] - point[:-1] ** 2, 1 - point[:-1]
    slopes = np.zeros_like(point)
    slopes[:-1] = -400 * point[:-1] * rise - 2 * far
    slopes[1:] += 200 * rise
    return float((100 * rise**2 + far**2).sum()), slopes


def test_steps_are_those_of_scipy_to_the_last_bit() -> None:
    for start in np.random.default_rng(0).uniform(-1, 0.5, (20, 3)):
        theirs = minimize(valley, start, jac=True, method="L-BFGS-B", bounds=BOUNDS)

        ours = find_minimum(valley, start, BOUNDS)

        assert ours.x.tobytes() == theirs.x.tobytes()
        assert (ours.fun, ours.nit, ours.nfev) == (theirs.fun, theirs.nit, theirs.nfev)


def test_every_point_is_computed_once() -> None:
    seen: list[bytes] = []

    def counted(point: FloatArray) -> tuple[float, FloatArray]:
        seen.append(point.tobytes())
        return valley(point)

    found = find_minimum(counted, np.zeros(3), BOUNDS)

    assert len(seen) == len(set(seen)) == found.nfev


def test_it_stops_after_the_most_steps() -> None:
    assert find_minimum(valley, np.zeros(3), BOUNDS, most=2).nit == 2
