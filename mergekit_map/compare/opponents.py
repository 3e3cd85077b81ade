"""Opponents of the search: other ways to spend a budget (docs/comparing.md).

Notation: ``d`` coefficients, ``m`` tasks, ``U`` (k, d) points of the unit box, ``Y``
(k, m) their metrics, larger is better. Opponents search the unit box: only the budget
knows the bounds. An opponent evaluates the real metrics at exactly its budget of points
and returns nothing: the points that it requested are its result, and the first n points
are its result after n. A point may repeat, and counts again. The same generator leads
to the same points.

Population sizes are for budgets of tens to hundreds: pymoo's defaults of 100 would
spend 200 evaluations on two generations. Here 200 are ten generations of 20, and in
general sqrt(2 * budget) individuals, so that both grow with the budget. With 200
evaluations of quadratics in 2, 4 and 8 tasks no other size was better throughout.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
from pymoo.algorithms.moo.moead import MOEAD
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.algorithms.moo.nsga3 import NSGA3
from pymoo.algorithms.moo.sms import SMSEMOA
from pymoo.core.algorithm import Algorithm
from pymoo.core.problem import Problem
from pymoo.optimize import minimize
from pymoo.util.ref_dirs import get_reference_directions

from mergekit_map.errors import ConfigError
from mergekit_map.optimize.design import draw_sobol
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.surrogates.arrays import FloatArray, from_unit, ranges
from mergekit_map.utils.text import nearest

PACKAGES = {"cma_es": "cma", "qlognehvi": "botorch", "optuna": "optuna"}
# Of the Bayesian optimisation. Small, but what BoTorch's tutorials use is of this kind.
BATCH = 4
MC_SAMPLES = 16
RESTARTS, RAW_SAMPLES, ITERATIONS = 2, 64, 20
FIT_ITERATIONS = 50
FRONT_SAMPLES = 512  # where the models predict the front that sets the reference point
# Exact box decompositions up to this many tasks, approximate ones up to the next;
# beyond, cells may vanish altogether, and ParEGO takes over.
EXACT_MAX_TASKS, HYPERVOLUME_MAX_TASKS = 3, 5
ALPHA = 1e-2
MIN_POPULATION = 4
NEIGHBOURHOOD = 0.2  # MOEA/D mates and replaces within this share of its directions
# A failed evaluation gets values below the worst seen, by this share of the range.
FAILURE_MARGIN = 0.1
NOTHING_SEEN = -1e12  # the value while all evaluations failed: no metric is this bad
Evaluate: TypeAlias = Callable[[FloatArray], FloatArray]  # (k, d) -> (k, m)


class Budget:
    """A number of evaluations in a box, spent in the order they are asked for.

    A failed evaluation (a row of metrics that are not all finite) counts. Its metrics
    are replaced by values worse than all measured so far, by a tenth of the range.
    """

    def __init__(
        self, evaluate: Evaluate, bounds: FloatArray, n_tasks: int, n_evaluations: int
    ) -> None:
        self.d, self.m = len(bounds), n_tasks
        self.left = n_evaluations
        self.bounds = bounds  # (d, 2)
        self._evaluate = evaluate
        self.U = np.empty((0, self.d))  # what was evaluated, in the unit box, and
        self.Y = np.empty((0, self.m))  # what that gave

    @property
    def X(self) -> FloatArray:
        """Return what was evaluated, in the bounds; (n, d)."""
        return from_unit(self.U, self.bounds)

    def spend(self, U: FloatArray) -> FloatArray:
        """Evaluate the rows of U (k, d), or the first ``left``; returns metrics."""
        asked = np.clip(U[: self.left], 0.0, 1.0)
        if len(asked) == 0:
            return np.empty((0, self.m))
        Y = self._evaluate(from_unit(asked, self.bounds))
        self.left -= len(asked)
        self.U, self.Y = np.vstack([self.U, asked]), np.vstack([self.Y, Y])
        return self.filled()[-len(asked) :]

    def filled(self) -> FloatArray:
        """Return all metrics so far, failures filled by what is known now; (n, m)."""
        known = np.asarray(np.isfinite(self.Y).all(axis=1))
        if not known.any():
            return np.full_like(self.Y, NOTHING_SEEN)
        measured = self.Y[known]
        worst = measured.min(axis=0) - FAILURE_MARGIN * ranges(measured)
        return np.where(known[:, None], self.Y, worst)


# Spends the whole budget; what it asked for is its result.
Opponent: TypeAlias = Callable[[Budget, np.random.Generator], Any]


def check_opponents(names: Iterable[str], n_tasks: int) -> None:
    """Raise ConfigError for opponents that cannot take part."""
    for name in names:
        if name not in OPPONENTS:
            known = nearest(name, OPPONENTS)
            raise ConfigError(f"there is no opponent {name!r}; {known}")
        if name in PACKAGES and find_spec(PACKAGES[name]) is None:
            raise ConfigError(
                f"the opponent {name!r} needs {PACKAGES[name]}, which is not installed;"
                " run pip install 'mergekit-map[bench]', or leave it out"
            )
        if name in WEIGHING and n_tasks < 2:
            raise ConfigError(
                f"the opponent {name!r} searches a trade-off between two or more "
                "tasks, but there is only one; leave it out, or add a task"
            )


def cma_es(evaluations: Budget, rng: np.random.Generator) -> None:
    """CMA-ES on the sum of the metrics as they are, which is what mergekit-evolve did.

    Like mergekit-evolve it starts at the weights 1 / d with a standard deviation of 1/6
    of the box and cma's own population size (10 for 8 coefficients). Unlike it, the
    search stays in the box, and starts again at a random point when it has converged.
    Its front is that of all points on the way to the best sum.
    """
    import cma

    d = evaluations.d
    lower, upper = evaluations.bounds.T
    start = np.clip((1 / d - lower) / (upper - lower), 0.0, 1.0)
    # cma needs two dimensions; beside a single coefficient the second has no effect.
    start = np.resize(start, max(d, 2))
    options = {
        "bounds": [0.0, 1.0],
        "randn": lambda *shape: rng.standard_normal(shape),
        "seed": np.nan,  # leaves NumPy's global generator alone
        "verbose": -9,
        "signals_filename": "",  # no file of the working directory steers a run
    }
    while evaluations.left:
        strategy = cma.CMAEvolutionStrategy(start, 1 / 6, options)
        while evaluations.left and not strategy.stop():
            asked = strategy.ask()
            Y = evaluations.spend(np.array(asked)[:, :d])
            if len(Y) == len(asked):
                strategy.tell(asked, (-Y.sum(axis=1)).tolist())  # cma minimises
        start = rng.random(len(start))


def optuna_tpe(evaluations: Budget, rng: np.random.Generator) -> None:
    """Optuna's multi-objective TPE with its defaults, one point at a time.

    What could not be measured is a failed trial of Optuna's.
    """
    import optuna

    names = [f"x{index}" for index in range(evaluations.d)]

    def objective(trial: Any) -> list[float]:
        evaluations.spend(np.array([[trial.suggest_float(n, 0.0, 1.0) for n in names]]))
        return [*map(float, evaluations.Y[-1])]

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(
            directions=["maximize"] * evaluations.m,
            sampler=optuna.samplers.TPESampler(seed=draw_seed(rng)),
        )
        study.optimize(objective, n_trials=evaluations.left)
    finally:
        optuna.logging.set_verbosity(verbosity)


def qlognehvi(evaluations: Budget, rng: np.random.Generator) -> None:
    """BoTorch's qLogNEHVI, four points at a time after 2(d + 1) Sobol points.

    One Gaussian process per task, refitted for every batch. Hypervolumes of box
    decompositions cost time exponential in the tasks: exact ones up to 3, approximate
    ones up to 5, beyond that qLogNParEGO, a random scalarisation per point, instead.
    The reference point is inferred from the front that the models predict: that of the
    points evaluated begins in the middle and the search would never leave it.
    """
    import torch
    from botorch.acquisition.multi_objective import logei

    from mergekit_map.demo.training import one_thread

    # BoTorch would compile a C++ kernel at first use: half a minute, files in
    # the user's cache, and other rounding where there is no compiler.
    logei._load_attempted = True
    n_start = 2 * (evaluations.d + 1)
    evaluations.spend(draw_sobol(n_start, evaluations.d, rng)[:n_start])
    while evaluations.left:
        seed = draw_seed(rng)
        with one_thread(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(seed)
            points = _propose(evaluations.U, evaluations.filled(), seed)
        evaluations.spend(points)


def _propose(U: FloatArray, Y: FloatArray, seed: int) -> FloatArray:
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim.optimize import optimize_acqf_list
    from gpytorch.mlls import ExactMarginalLogLikelihood

    # Standardises Y; independent processes, in one batch.
    model = SingleTaskGP(torch.tensor(U), torch.tensor(Y))
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model),
        optimizer_kwargs={"options": {"maxiter": FIT_ITERATIONS}},
    )
    limits = {"batch_limit": RESTARTS, "init_batch_limit": RAW_SAMPLES}
    points, _ = optimize_acqf_list(
        _acquisitions(model, U, Y, seed),
        torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, U.shape[1]),
        num_restarts=RESTARTS,
        raw_samples=RAW_SAMPLES,
        options={**limits, "maxiter": ITERATIONS},
    )
    return np.asarray(points.numpy(), dtype=np.float64)


def _acquisitions(model: Any, U: FloatArray, Y: FloatArray, seed: int) -> list[Any]:
    import torch
    from botorch.acquisition.multi_objective import logei, parego
    from botorch.sampling.normal import SobolQMCNormalSampler
    from botorch.utils.multi_objective.hypervolume import infer_reference_point

    m = Y.shape[1]
    of_all: dict[str, Any] = {
        "X_baseline": torch.tensor(U),
        "sampler": SobolQMCNormalSampler(torch.Size([MC_SAMPLES]), seed=seed),
        "prune_baseline": True,
    }
    if m > HYPERVOLUME_MAX_TASKS:
        return [parego.qLogNParEGO(model, **of_all) for _ in range(BATCH)]
    points = draw_sobol(FRONT_SAMPLES, U.shape[1], np.random.default_rng(seed))
    with torch.no_grad():
        predicted = model.posterior(torch.tensor(points)).mean.numpy()
    known = np.vstack([Y, predicted])
    acquisition = logei.qLogNoisyExpectedHypervolumeImprovement(
        model,
        infer_reference_point(torch.tensor(known[non_dominated(known)])),
        alpha=0.0 if m <= EXACT_MAX_TASKS else ALPHA,
        **of_all,
    )
    return [acquisition] * BATCH


def draw_seed(rng: np.random.Generator) -> int:
    """Draw the seed of a library that takes no generator, in [0, 2**31)."""
    return int(rng.integers(2**31))


def _random(evaluations: Budget, rng: np.random.Generator) -> None:
    evaluations.spend(rng.random((evaluations.left, evaluations.d)))


def _grid(evaluations: Budget, rng: np.random.Generator) -> None:
    """Direct search: the finest full grid that fits, shuffled, then uniform points.

    Where not even 2 levels fit (8 coefficients, 200 points) all points are uniform.
    """
    d = evaluations.d
    levels = next(n for n in itertools.count(1) if (n + 1) ** d > evaluations.left)
    if levels > 1:
        grid = [*itertools.product(np.linspace(0.0, 1.0, levels), repeat=d)]
        evaluations.spend(rng.permutation(grid))
    _random(evaluations, rng)


def _moead(m: int, size: int) -> Algorithm:
    directions = _directions(m, size)
    neighbours = max(MIN_POPULATION, round(NEIGHBOURHOOD * len(directions)))
    return MOEAD(directions, n_neighbors=neighbours)


def _evolve(
    make: Callable[[int, int], Algorithm],
    evaluations: Budget,
    rng: np.random.Generator,
    *,
    scaled: bool = False,
) -> None:
    """Search with an algorithm of pymoo, made for m tasks and a population size."""
    size = max(MIN_POPULATION, round(np.sqrt(2 * evaluations.left)))
    problem = _Problem(evaluations, scaled=scaled)
    algorithm, end = make(evaluations.m, size), ("n_eval", evaluations.left)
    with warnings.catch_warnings():  # NSGA-III switches all off for the process
        minimize(problem, algorithm, end, seed=draw_seed(rng))
    # A population that has converged to one point ends before its budget does.
    _random(evaluations, rng)


class _Problem(Problem):  # type: ignore[misc]
    def __init__(self, evaluations: Budget, *, scaled: bool) -> None:
        d, m = evaluations.d, evaluations.m
        super().__init__(n_var=d, n_obj=m, xl=np.zeros(d), xu=np.ones(d))
        self._evaluations = evaluations
        self._unit = None if scaled else np.ones(m)

    def _evaluate(self, U: FloatArray, out: dict[str, Any], *_: Any, **__: Any) -> None:
        Y = self._evaluations.spend(U)
        if self._unit is None:
            self._unit = ranges(Y)
        out["F"] = np.full((len(U), self.n_obj), -NOTHING_SEEN)  # beyond the budget
        out["F"][: len(Y)] = -Y / self._unit


@cache
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
    "sobol": lambda budget, rng: budget.spend(draw_sobol(budget.left, budget.d, rng)),
    "grid": _grid,
    # Tasks are scaled by their range in the first population, as the authors of MOEA/D
    # suggest; pymoo adds them up as they are.
    "moead": partial(_evolve, _moead, scaled=True),
    "nsga2": partial(_evolve, lambda _, size: NSGA2(size)),
    "nsga3": partial(_evolve, lambda m, size: NSGA3(_directions(m, size))),
    # A child at a time: whoever adds least hypervolume goes.
    "sms_emoa": partial(_evolve, lambda _, size: SMSEMOA(size, n_offsprings=1)),
    "cma_es": cma_es,
    "qlognehvi": qlognehvi,
    "optuna": optuna_tpe,
}
# These weigh tasks by directions or volumes, so that there must be two.
WEIGHING = frozenset({"moead", "nsga3", "qlognehvi", "sms_emoa"})
