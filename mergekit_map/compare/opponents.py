"""Opponents of the search: other ways to spend a budget (docs/comparing.md).

Notation: ``d`` coefficients, ``m`` tasks, larger is better. An opponent evaluates the
real metrics at exactly its budget of points and returns nothing: the points that it
requested are its result, and the first n points are its result after n. Starting
points, where given, come first and count.

A point may repeat, and counts again. The metrics of a failed evaluation are replaced by
worse than all seen (``budget.py``). The same generator leads to the same points.

Population sizes are for budgets of tens to hundreds: pymoo's defaults of 100 would
spend 200 evaluations on two generations. Here 200 are ten generations of 20, and in
general sqrt(2 * budget) individuals, so that both grow with the budget. With 200
evaluations of quadratics in 2, 4 and 8 tasks no other size was better throughout.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from pymoo.algorithms.moo.moead import MOEAD
from pymoo.algorithms.moo.nsga2 import NSGA2, RankAndCrowding, binary_tournament
from pymoo.algorithms.moo.nsga3 import NSGA3, comp_by_cv_then_random
from pymoo.algorithms.moo.sms import (
    SMSEMOA,
    LeastHypervolumeContributionSurvival,
    cv_and_dom_tournament,
)
from pymoo.core.problem import Problem
from pymoo.core.termination import NoTermination
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM
from pymoo.operators.sampling.rnd import FloatRandomSampling
from pymoo.operators.selection.tournament import TournamentSelection
from pymoo.problems.static import StaticProblem
from pymoo.util.ref_dirs import get_reference_directions

from mergekit_map.compare.budget import Budget, draw_seed, sobol_points
from mergekit_map.compare.optional_opponents import cma_es, optuna_tpe, qlognehvi
from mergekit_map.surrogates.arrays import FloatArray, ranges

if TYPE_CHECKING:
    from pymoo.core.algorithm import Algorithm

# Spends the whole budget; what it asked for is its result.
Opponent: TypeAlias = Callable[[Budget, np.random.Generator], None]

MIN_POPULATION = 4
# MOEA/D mates and replaces within this share of its directions.
NEIGHBOURHOOD = 0.2


def _random(evaluations: Budget, rng: np.random.Generator) -> None:
    evaluations.spend(evaluations.starts)
    evaluations.spend(rng.random((evaluations.left, evaluations.d)))


def _sobol(evaluations: Budget, rng: np.random.Generator) -> None:
    evaluations.spend(evaluations.starts)
    if evaluations.left:
        evaluations.spend(sobol_points(evaluations.d, evaluations.left, rng))


def _grid(evaluations: Budget, rng: np.random.Generator) -> None:
    """Direct search: the finest full grid that fits, shuffled, then uniform points.

    Where not even 2 levels fit (8 coefficients, 200 points) all points are uniform.
    """
    d = evaluations.d
    evaluations.spend(evaluations.starts)
    levels = next(n for n in itertools.count(1) if (n + 1) ** d > evaluations.left)
    if levels > 1:
        axes = [np.linspace(0.0, 1.0, levels)] * d
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
        evaluations.spend(rng.permutation(grid))
    evaluations.spend(rng.random((evaluations.left, d)))


def _moead(evaluations: Budget, rng: np.random.Generator) -> None:
    """MOEA/D, tasks scaled by their range in the first population.

    pymoo adds tasks up as they are; the scaling is the one its authors suggest.
    """
    directions = _directions(evaluations.m, _population_size(evaluations))
    algorithm = MOEAD(
        directions,
        n_neighbors=max(MIN_POPULATION, round(NEIGHBOURHOOD * len(directions))),
        # Passed explicitly: pymoo's defaults are instances shared by all runs.
        sampling=_sampling(evaluations, len(directions), rng),
        crossover=SBX(prob=1.0, eta=20),
        mutation=PM(eta=20),
    )
    _run(algorithm, evaluations, rng, scaled=True)


def _nsga2(evaluations: Budget, rng: np.random.Generator) -> None:
    size = _population_size(evaluations)
    algorithm = NSGA2(
        pop_size=size,
        sampling=_sampling(evaluations, size, rng),
        selection=TournamentSelection(func_comp=binary_tournament),
        crossover=SBX(eta=15, prob=0.9),
        mutation=PM(eta=20),
        survival=RankAndCrowding(),
    )
    _run(algorithm, evaluations, rng)


def _nsga3(evaluations: Budget, rng: np.random.Generator) -> None:
    directions = _directions(evaluations.m, _population_size(evaluations))
    algorithm = NSGA3(
        directions,
        sampling=_sampling(evaluations, len(directions), rng),
        selection=TournamentSelection(func_comp=comp_by_cv_then_random),
        crossover=SBX(eta=30, prob=1.0),
        mutation=PM(eta=20),
    )
    _run(algorithm, evaluations, rng)


def _sms_emoa(evaluations: Budget, rng: np.random.Generator) -> None:
    """SMS-EMOA, a child at a time: whoever adds least hypervolume goes."""
    size = _population_size(evaluations)
    algorithm = SMSEMOA(
        pop_size=size,
        n_offsprings=1,
        sampling=_sampling(evaluations, size, rng),
        selection=TournamentSelection(func_comp=cv_and_dom_tournament),
        crossover=SBX(),
        mutation=PM(),
        survival=LeastHypervolumeContributionSurvival(),
    )
    _run(algorithm, evaluations, rng)


def _run(
    algorithm: Algorithm,
    evaluations: Budget,
    rng: np.random.Generator,
    *,
    scaled: bool = False,
) -> None:
    d, m = evaluations.d, evaluations.m
    problem = Problem(n_var=d, n_obj=m, xl=np.zeros(d), xu=np.ones(d))
    seed = draw_seed(rng)
    algorithm.setup(problem, seed=seed, termination=NoTermination(), output=None)
    unit = None if scaled else np.ones(m)
    while evaluations.left:
        # NSGA-III switches all warnings off for the whole process.
        with warnings.catch_warnings():
            asked = algorithm.ask()
        if asked is None:
            # The population has converged to one point, so that every child repeats.
            evaluations.spend(rng.random((evaluations.left, d)))
            return
        # MOEA/D asks for an individual at a time, the others for a population.
        U = np.atleast_2d(np.asarray(asked.get("X"), dtype=np.float64))
        Y = evaluations.spend(U)
        if len(Y) < len(U):
            return
        if unit is None:
            unit = ranges(Y)
        with warnings.catch_warnings():
            # pymoo minimises
            algorithm.evaluator.eval(StaticProblem(problem, F=-Y / unit), asked)
            algorithm.tell(infills=asked)


def _population_size(evaluations: Budget) -> int:
    natural = round(math.sqrt(2 * evaluations.left))
    return max(MIN_POPULATION, len(evaluations.starts), natural)


def _sampling(
    evaluations: Budget, size: int, rng: np.random.Generator
) -> FloatRandomSampling | FloatArray:
    """Return the sampling of a population: starting points, then uniform ones."""
    starts = evaluations.starts
    if len(starts) == 0:
        return FloatRandomSampling()
    missing = max(0, size - len(starts))
    return np.vstack([starts, rng.random((missing, evaluations.d))])[:size]


@functools.cache
def _directions(n_tasks: int, n: int) -> FloatArray:
    """Spread n directions, or one per task if that is more, over the simplex."""
    n = max(n, n_tasks)
    if n_tasks == 2:
        found = get_reference_directions("das-dennis", 2, n_partitions=n - 1)
    else:
        # Das and Dennis have no set of just any size; the seed only starts the spread.
        found = get_reference_directions("energy", n_tasks, n, seed=1)
    return np.asarray(found, dtype=np.float64)


OPPONENTS: dict[str, Opponent] = {
    "random": _random,
    "sobol": _sobol,
    "grid": _grid,
    "moead": _moead,
    "nsga2": _nsga2,
    "nsga3": _nsga3,
    "sms_emoa": _sms_emoa,
    "cma_es": cma_es,
    "qlognehvi": qlognehvi,
    "optuna": optuna_tpe,
}
# These weigh tasks by directions, so that there must be two.
WEIGHING = frozenset({"moead", "nsga3", "qlognehvi"})
