"""Opponents that need the packages of the extra ``bench``, imported when called.

Notation and contract as in ``opponents.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from mergekit_map.compare.budget import Budget, draw_seed, sobol_points
from mergekit_map.errors import ConfigError
from mergekit_map.surrogates.arrays import FloatArray

if TYPE_CHECKING:
    from torch import Tensor


PACKAGES = {"cma_es": "cma", "qlognehvi": "botorch", "optuna": "optuna"}

STARTUP_TRIALS = 10  # optuna's own default
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


def check_installed(names: Iterable[str]) -> None:
    """Raise ConfigError, naming every opponent and package that is missing."""
    missing = [n for n in names if n in PACKAGES and find_spec(PACKAGES[n]) is None]
    if missing:
        named = ", ".join(f"{name!r} ({PACKAGES[name]})" for name in missing)
        raise ConfigError(
            f"opponents need packages of the extra 'bench' that are not installed: "
            f"{named}; run pip install 'mergekit-map[bench]', or leave them out"
        )


def cma_es(evaluations: Budget, rng: np.random.Generator) -> None:
    """CMA-ES on the sum of the metrics as they are, which is what mergekit-evolve did.

    Like mergekit-evolve it starts at the weights 1 / d with a standard deviation of 1/6
    of the box and cma's own population size (10 for 8 coefficients). Unlike it, the
    search stays in the box, and starts again at a random point when it has converged.
    Its front is that of all points on the way to the best sum. Given starting points,
    it starts at the best of them.
    """
    import cma

    d = evaluations.d
    lower, upper = evaluations.bounds.T
    start = np.clip((1 / d - lower) / (upper - lower), 0.0, 1.0)
    if len(evaluations.starts):
        Y = evaluations.spend(evaluations.starts)
        start = evaluations.starts[int(Y.sum(axis=1).argmax())]
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

    The first 10 points are random and evaluated together, so that a failure among them
    has something to be worse than. Points to start from come before these and count
    among the 10.
    """
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(
            directions=["maximize"] * evaluations.m,
            sampler=optuna.samplers.TPESampler(seed=draw_seed(rng)),
        )
        names = [f"x{index}" for index in range(evaluations.d)]
        for point in evaluations.starts.tolist():
            study.enqueue_trial(dict(zip(names, point, strict=True)))
        at_once = max(STARTUP_TRIALS, len(evaluations.starts))
        while evaluations.left:
            trials = [study.ask() for _ in range(at_once)]
            at_once = 1
            asked = [[t.suggest_float(n, 0.0, 1.0) for n in names] for t in trials]
            Y = evaluations.spend(np.array(asked))
            for trial, row in zip(trials, Y, strict=False):  # the budget may have ended
                study.tell(trial, row.tolist())
    finally:
        optuna.logging.set_verbosity(verbosity)


def qlognehvi(evaluations: Budget, rng: np.random.Generator) -> None:
    """BoTorch's qLogNEHVI, four points at a time after 2(d + 1) Sobol points.

    Points to start from take the place of as many of these.

    One Gaussian process per task, refitted for every batch. Hypervolumes of box
    decompositions cost time exponential in the tasks: exact ones up to 3, approximate
    ones up to 5, beyond that qLogNParEGO, a random scalarisation per point, instead.
    The reference point is inferred from the front that the models predict: that of the
    points evaluated begins in the middle and the search would never leave it.
    """
    evaluations.spend(evaluations.starts)
    missing = 2 * (evaluations.d + 1) - len(evaluations.starts)
    if missing > 0:
        evaluations.spend(sobol_points(evaluations.d, missing, rng))
    while evaluations.left:
        seed = draw_seed(rng)
        with _quiet_torch(seed):
            points = _propose(*evaluations.history(), seed)
        evaluations.spend(points)


@contextmanager
def _quiet_torch(seed: int) -> Iterator[None]:
    """Run torch with one thread, its own random state and no warnings; then restore.

    BoTorch's compiled kernel stays off in the process.
    """
    import torch
    from botorch.acquisition.multi_objective import logei

    # BoTorch would compile a C++ kernel at first use: half a minute, files in
    # the user's cache, and other rounding where there is no compiler.
    logei._load_attempted = True
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def _propose(U: FloatArray, Y: FloatArray, seed: int) -> FloatArray:
    import torch
    from botorch.optim.optimize import optimize_acqf

    d = U.shape[1]
    X = torch.tensor(U)
    model = _fit(X, torch.tensor(Y))
    acquisition = _acquisition(model, X, torch.tensor(Y), seed)
    box = torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64)
    pending: list[Any] = []
    for _ in range(BATCH):
        point, _ = optimize_acqf(
            acquisition(torch.cat(pending) if pending else None),
            box,
            q=1,
            num_restarts=RESTARTS,
            raw_samples=RAW_SAMPLES,
            options={
                "batch_limit": RESTARTS,
                "init_batch_limit": RAW_SAMPLES,
                "maxiter": ITERATIONS,
            },
        )
        pending.append(point)
    return np.asarray(torch.cat(pending).numpy(), dtype=np.float64)


def _fit(X: Tensor, Y: Tensor) -> Any:
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    model = SingleTaskGP(X, Y)  # standardises Y; independent processes, in one batch
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(
        likelihood, optimizer_kwargs={"options": {"maxiter": FIT_ITERATIONS}}
    )
    return model


def _acquisition(
    model: Any, X: Tensor, Y: Tensor, seed: int
) -> Callable[[Tensor | None], Any]:
    """Return a factory of acquisition functions for pending points (k, d) or None."""
    import torch
    from botorch.acquisition.multi_objective.logei import (
        qLogNoisyExpectedHypervolumeImprovement,
    )
    from botorch.acquisition.multi_objective.parego import qLogNParEGO
    from botorch.sampling.normal import SobolQMCNormalSampler

    m = Y.shape[1]
    sampler = SobolQMCNormalSampler(torch.Size([MC_SAMPLES]), seed=seed)
    if m > HYPERVOLUME_MAX_TASKS:
        return lambda pending: qLogNParEGO(
            model, X, sampler=sampler, X_pending=pending, prune_baseline=True
        )
    reference = _reference_point(model, X, Y, seed)
    acquisition = qLogNoisyExpectedHypervolumeImprovement(
        model,
        reference,
        X,
        sampler=sampler,
        prune_baseline=True,
        alpha=0.0 if m <= EXACT_MAX_TASKS else ALPHA,
    )

    def with_pending(pending: Tensor | None) -> Any:
        acquisition.set_X_pending(pending)
        return acquisition

    return with_pending


def _reference_point(model: Any, X: Tensor, Y: Tensor, seed: int) -> Tensor:
    import torch
    from botorch.utils.multi_objective.hypervolume import infer_reference_point
    from botorch.utils.multi_objective.pareto import is_non_dominated

    rng = np.random.default_rng(seed)
    points = torch.tensor(sobol_points(X.shape[1], FRONT_SAMPLES, rng))
    with torch.no_grad():
        known = torch.cat([Y, model.posterior(points).mean])
    reference: Tensor = infer_reference_point(known[is_non_dominated(known)])
    return reference
