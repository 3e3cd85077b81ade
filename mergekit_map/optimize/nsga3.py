"""The amortized Pareto front: NSGA-III on the surrogates (algorithm 1, steps 5 and 6).

Notation: ``n`` points, ``d`` coefficients, ``m`` tasks, ``Y`` (n, m) predicted metrics,
larger is better. The search never leaves the sampled box: outside it a quadratic is an
extrapolation.

Beyond the paper: the best point of every task is computed exactly and joins the front.
A few generations locate the front; ``front_filling`` then fills it and moves it into
place. ``approximate_front`` is cheap, for planning after every merge.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from pymoo.algorithms.moo.nsga3 import NSGA3
from pymoo.core.problem import Problem
from pymoo.problems.static import StaticProblem
from pymoo.util.ref_dirs import get_reference_directions
from pymoo.util.reference_direction import get_partition_closest_to_points
from scipy.stats import qmc

from mergekit_map.optimize.front_filling import (
    SAME_METRIC,
    fill_front,
    non_dominated,
    pareto_newton,
    quantized,
)
from mergekit_map.optimize.scalarization import (
    Predict,
    farthest_point_subset,
    varying_range,
)
from mergekit_map.surrogates.arrays import FloatArray, from_unit
from mergekit_map.utils.shutdown import check_interrupt

N_GENERATIONS = 20
N_DIRECTIONS = 120  # at most; what lies between them is filled in afterwards
# About how many points to look for, where the front is a line (of two tasks) and where
# it is not: enough for nearly all of the hypervolume of two to four tasks.
N_POINTS_LINE, N_POINTS_SURFACE = 100, 450
N_SAMPLES = 4096  # Sobol points that set the scale of every task and the starts
N_BEST_SAMPLES = 200  # of those that no other sample dominates
N_STARTS = 4  # local searches per task
N_STEPS = 40  # of a local search
SAME_POINT = 1e-6  # points that differ by less, as a share of the box, are the same
# The weight of the other tasks in the search for the best point of one. It decides
# where that task is flat, and costs the task about the square of it.
OTHER_TASKS_WEIGHT = 1e-4
_N_APPROXIMATE_SAMPLES = 1024
_N_OFFSPRING = 512
_MAX_PARENTS = 256
_MOST_ROWS = 2**16  # at once; of 40 coefficients each takes 20 kB
_MUTATION_STEPS = (0.1, 0.03, 0.01)  # shares of the box


def compute_front(predict: Predict, bounds: FloatArray, *, seed: int) -> FloatArray:
    """Return the non-dominated coefficients (k, d), k >= 1, of a box of bounds (d, 2).

    ``predict`` is vectorised, finite, larger is better; it is only called with points
    of the box. The same seed, of NSGA-III, gives the same bytes. No two rows predict
    the same metrics; they are in increasing order of the first task, then of the
    others. For one task there is the best point alone.
    """

    def predict_unit(U: FloatArray) -> FloatArray:
        check_interrupt()
        parts = np.split(U, range(_MOST_ROWS, len(U), _MOST_ROWS))
        return np.vstack([predict(from_unit(part, bounds)) for part in parts])

    samples = qmc.Sobol(len(bounds), scramble=False).random(N_SAMPLES)
    # Tasks go from their worst to their best sample. A constant metric is fitted with
    # errors of rounding, which must decide nothing: its range is infinite.
    Y = predict_unit(samples)
    worst, width = Y.min(axis=0), varying_range(Y)

    def scores(U: FloatArray) -> FloatArray:
        return np.asarray((predict_unit(U) - worst) / width)

    points = _best_per_task(scores, samples, Y.shape[1])
    if len(points) > 1:
        points = _search_front(scores, samples, points, seed)
    # Points that all but touch a side of the unit box move onto it.
    points = np.where(points < SAME_POINT, 0.0, points)
    points = np.where(points > 1 - SAME_POINT, 1.0, points)
    distinct = _without_repeats(points, scores(points))
    # A local optimum that a sample dominates does not stay. Some point always does: no
    # sample is better at a task than the best point of that task.
    joined = quantized(scores(np.vstack([distinct, samples])))
    front = distinct[non_dominated(joined)[: len(distinct)]]
    # Sort by the tasks, then by the coefficients. The last key of lexsort counts most.
    keys = np.hstack([predict_unit(front), front])
    return from_unit(front[np.lexsort(keys[:, ::-1].T)], bounds)


def _search_front(
    scores: Predict, samples: FloatArray, extremes: FloatArray, seed: int
) -> FloatArray:
    """Locate the front by NSGA-III, from the best samples and the extremes; fill it."""
    n_points = N_POINTS_LINE if len(extremes) == 2 else N_POINTS_SURFACE
    best = samples[non_dominated(scores(samples))]
    best = best[farthest_point_subset(scores(best), N_BEST_SAMPLES)]
    directions = _reference_directions(len(extremes), min(n_points, N_DIRECTIONS))
    population = _run_nsga3(scores, np.vstack([extremes, best]), directions, seed)
    starts = np.vstack([extremes, population, best])
    filled = fill_front(scores, starts, n_points, np.random.default_rng(seed))
    return np.vstack([extremes, filled])


def _best_per_task(scores: Predict, samples: FloatArray, n_tasks: int) -> FloatArray:
    """Maximize one task after the other from its best samples; returns (m, d)."""
    preferences = np.full((n_tasks, n_tasks), OTHER_TASKS_WEIGHT / max(n_tasks - 1, 1))
    np.fill_diagonal(preferences, 1.0)
    sums = scores(samples) @ preferences  # (samples, m), as preferences are symmetric
    best_samples = np.argsort(-sums, axis=0, kind="stable")[:N_STARTS]  # (starts, m)
    starts = samples[best_samples.ravel()]
    start_preferences = np.tile(preferences, (len(best_samples), 1))
    optima = pareto_newton(scores, starts, N_STEPS, start_preferences)
    optimal_sums = (scores(optima) * start_preferences).sum(axis=1)
    best_starts = optimal_sums.reshape(best_samples.shape).argmax(axis=0)  # (m,)
    optima_by_start = optima.reshape(*best_samples.shape, -1)  # (starts, m, d)
    return np.asarray(optima_by_start[best_starts, np.arange(n_tasks)])


def _reference_directions(n_tasks: int, n_points: int) -> FloatArray:
    """Spread at most n_points directions over the simplex; one, if not one per task."""
    outer = get_partition_closest_to_points(n_points, n_tasks)
    directions = get_reference_directions("das-dennis", n_tasks, n_partitions=outer)
    inner = get_partition_closest_to_points(n_points - len(directions), n_tasks)
    if outer < n_tasks and inner > 0:
        # All of them lie on the border of the simplex: a second layer goes inside.
        inner_layer = get_reference_directions(
            "das-dennis", n_tasks, n_partitions=inner, scaling=0.5
        )
        directions = np.vstack([directions, inner_layer])
    return np.asarray(directions, dtype=np.float64)


def _run_nsga3(
    scores: Predict, starts: FloatArray, directions: FloatArray, seed: int
) -> FloatArray:
    """Evolve the starts towards a front in these directions; returns (k, d)."""
    algorithm = NSGA3(directions, sampling=starts, output=None)
    # NSGA-III switches all warnings off for the whole process.
    with warnings.catch_warnings():
        d = starts.shape[1]
        problem = Problem(n_var=d, n_obj=directions.shape[1], xl=0.0, xu=1.0)
        algorithm.setup(problem, termination=("n_gen", N_GENERATIONS), seed=seed)
        while algorithm.has_next():
            population = algorithm.ask()
            F = -quantized(scores(population.get("X")))  # pymoo minimizes
            algorithm.evaluator.eval(StaticProblem(problem, F=F), population)
            algorithm.tell(infills=population)
    return np.asarray(algorithm.pop.get("X"), dtype=np.float64)


def _without_repeats(points: FloatArray, scores: FloatArray) -> FloatArray:
    kept: list[int] = []
    for index in range(len(points)):
        other_point = np.abs(points[kept] - points[index]).max(axis=1) > SAME_POINT
        other_score = np.abs(scores[kept] - scores[index]).max(axis=1) > SAME_METRIC
        if (other_point & other_score).all():
            kept.append(index)
    return points[kept]


def approximate_front(predict: Predict, bounds: FloatArray) -> FloatArray:
    """Return non-dominated points (k, d) near the front, with the best of each task.

    Sample the box, then move the non-dominated points by smaller and smaller steps. The
    same predictions lead to the same points.
    """
    rng = np.random.default_rng(0)
    U = qmc.Sobol(len(bounds), scramble=False).random(_N_APPROXIMATE_SAMPLES)
    Y = predict(from_unit(U, bounds))
    for step in _MUTATION_STEPS:
        U, Y = _survivors(U, Y)
        parents = np.resize(U, (_N_OFFSPRING, len(bounds)))  # in turn
        offspring = np.clip(parents + step * rng.normal(size=parents.shape), 0, 1)
        U = np.vstack([U, offspring])
        Y = np.vstack([Y, predict(from_unit(offspring, bounds))])
    return from_unit(_survivors(U, Y)[0], bounds)


def _survivors(U: FloatArray, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Keep the non-dominated points; of too many all extremes, and an even share."""
    front = np.flatnonzero(non_dominated(Y))
    if len(front) > _MAX_PARENTS:
        extremes = front[Y[front].argmax(axis=0)]
        stride = math.ceil(len(front) / _MAX_PARENTS)
        front = np.unique(np.concatenate([extremes, front[::stride]]))
    return U[front], Y[front]
