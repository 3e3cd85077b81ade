"""Local searches that make the points of a front exact; used by ``front`` alone.

Notation: ``d`` coefficients on the unit box, ``m`` tasks, ``scores`` maps (k, d) to
(k, m), each task in units of its own range, larger is better and smooth. The paper
stops at the genetic algorithm, which comes near the front but seldom onto it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import Bounds, minimize

from mergekit_map.search.arrays import FloatArray

Scores: TypeAlias = Callable[[FloatArray], FloatArray]

STEP = 1e-5  # of the numerical derivatives


def maximise(scores: Scores, preference: FloatArray, starts: FloatArray) -> FloatArray:
    """Return the best local maximum of ``scores @ preference`` from the starts (k, d).

    The first of equal ones; shape (d,).
    """

    def descent(u: FloatArray) -> tuple[float, FloatArray]:
        value, jacobian = _linearise(scores, u)
        return -float(value @ preference), -(preference @ jacobian)

    tops = []
    for start in starts:
        found = minimize(
            descent,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=_unit_box(len(start)),
            options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 200},
        )
        tops.append(np.clip(found.x, 0, 1))
    candidates = np.array(tops)
    best: FloatArray = candidates[np.argmax(scores(candidates) @ preference)]
    return best


def push_to_front(scores: Scores, point: FloatArray) -> FloatArray:
    """Improve a point until no task can gain without another losing (Benson's method).

    Maximises the sum of the scores while no task falls below its score at ``point``
    (d,). Keeps the shape of the front, convex or not, as a weighted sum would not.
    Returns the point itself where nothing better is found.
    """
    floor = scores(point[None])[0]
    last: dict[bytes, tuple[FloatArray, FloatArray]] = {}

    def at(u: FloatArray) -> tuple[FloatArray, FloatArray]:
        # SLSQP asks for objective and constraints at one place after the other.
        if u.tobytes() not in last:
            last.clear()
            last[u.tobytes()] = _linearise(scores, u)
        return last[u.tobytes()]

    def descent(u: FloatArray) -> tuple[float, FloatArray]:
        return -float(at(u)[0].sum()), -at(u)[1].sum(axis=0)

    # Typed by hand: SciPy's stubs do not know the "jac" of a constraint.
    no_loss: Any = {
        "type": "ineq",
        "fun": lambda u: at(u)[0] - floor,
        "jac": lambda u: at(u)[1],
    }
    # SLSQP warns of a step that left the box, and clips it; so do we.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = minimize(
            descent,
            point,
            jac=True,
            method="SLSQP",
            bounds=_unit_box(len(point)),
            constraints=no_loss,
            options={"ftol": 1e-10, "maxiter": 50},
        )
    better = np.clip(found.x, 0, 1)
    # Constraints hold up to SLSQP's tolerance; a real loss means that it failed.
    gain = scores(better[None])[0] - floor
    return better if gain.min() > -1e-6 and gain.sum() > 0 else point


def _linearise(scores: Scores, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the scores (m,) and their derivatives (m, d) at u (d,) in one call.

    Central differences, which are exact for quadratics, one-sided on the border.
    """
    d = len(u)
    steps = STEP * np.eye(d)
    points = np.clip(np.vstack([u[None], u + steps, u - steps]), 0, 1)
    values = scores(points)
    widths = np.diag(points[1 : d + 1] - points[d + 1 :])
    return values[0], (values[1 : d + 1] - values[d + 1 :]).T / widths


def _unit_box(d: int) -> Bounds:
    return Bounds(np.zeros(d), np.ones(d))
