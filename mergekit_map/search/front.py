"""The amortized Pareto front: NSGA-III on the surrogates (algorithm 1, steps 5 and 6).

Notation: ``n`` points, ``d`` coefficients, ``m`` tasks, ``Y`` (n, m) predicted metrics,
larger is better. The search never leaves the sampled box: outside it a quadratic is an
extrapolation.

Beyond the paper: the best point of every task is computed exactly and joins the front,
so its ends do not depend on luck.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga3 import NSGA3, comp_by_cv_then_random
from pymoo.core.problem import Problem
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM
from pymoo.operators.selection.tournament import TournamentSelection
from pymoo.optimize import minimize as pymoo_minimize
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting
from pymoo.util.ref_dirs import get_reference_directions
from scipy.optimize import minimize
from scipy.stats import qmc

FloatArray = NDArray[np.float64]
Predict: TypeAlias = Callable[[FloatArray], FloatArray]  # (k, d) -> (k, m)

N_GENERATIONS = 120
N_SAMPLES = 1024  # Sobol points that set the scale of every task and the starts
N_STARTS = 4  # local searches per task
# Metrics that differ by less than this fraction of a task's range are equal, and so are
# points that differ by less than this fraction of the box.
SAME_METRIC = 1e-9
SAME_POINT = 1e-6
# The best point of a task counts the other tasks this much, which decides where the
# task is flat and costs the task itself about the square of it.
SECOND_THOUGHT = 1e-4


def compute_front(
    predict: Predict,
    bounds: FloatArray,
    n_tasks: int,
    *,
    seed: int,
    n_points: int = 100,
) -> FloatArray:
    """Search the box for the coefficients that no other ones dominate.

    Args:
        predict: Vectorised, (k, d) -> (k, m), larger is better; only called with points
            of the box.
        bounds: (d, 2) lower and upper ends of the box.
        n_tasks: m, the width of what ``predict`` returns.
        seed: Of NSGA-III; the same seed gives the same bytes.
        n_points: About how many points to look for. A front that shrinks to fewer
            returns fewer, and more tasks than points return one end per task.

    Returns:
        (k, d) distinct coefficients, mutually non-dominated, k >= 1, in increasing
        order of the first task's prediction, then of the others'. For one task the
        best point alone.

    Raises:
        ValueError: wrong shapes, an empty box, or predictions that are not finite.
    """
    _check(bounds, n_tasks, n_points)
    lower, upper = bounds.T

    def predict_unit(U: FloatArray) -> FloatArray:
        Y = predict(np.clip(lower + U * (upper - lower), lower, upper))
        if Y.shape != (len(U), n_tasks):
            raise ValueError(f"predict must return {(len(U), n_tasks)}, got {Y.shape}")
        if not np.isfinite(Y).all():
            raise ValueError("predict must return finite values everywhere in the box")
        return Y

    samples = _sobol(len(bounds))
    rounded = _in_units_of_range(predict_unit, samples)
    ends = _best_per_task(rounded, samples, n_tasks)
    found = ends
    if n_tasks > 1:
        directions = _reference_directions(n_tasks, n_points)
        found = np.vstack([ends, _nsga3(rounded, samples, directions, seed)])
    found = _distinct(found)
    Z = np.round(rounded(found), _DIGITS)
    keep = non_dominated(Z)
    found, Z = found[keep], Z[keep]
    if n_tasks == 1:
        found, Z = found[:1], Z[:1]
    # lexsort's last key is the first to decide.
    order = np.lexsort(np.hstack([found[:, ::-1], Z[:, ::-1]]).T)
    ...


def non_dominated(Y: FloatArray) -> NDArray[np.bool_]:
    """Mark the rows of Y (n, m) that no other row dominates, larger is better.

    A row dominates another if it is nowhere smaller and somewhere larger, so equal rows
    are all kept. A row with NaN counts as dominated and dominates nothing.
    """
    mask = ~np.isnan(Y).any(axis=1)
    if mask.any():
        candidates = np.flatnonzero(mask)
        best = NonDominatedSorting().do(
            -Y[candidates], only_non_dominated_front=True
        )
        mask[:] = False
        mask[candidates[best]] = True
    return mask
