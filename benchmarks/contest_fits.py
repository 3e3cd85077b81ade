"""What a search of ours knows after a few merges: front, fits and chosen point.

    python benchmarks/contest_families.py FAMILIES
    python benchmarks/contest_fits.py run FAMILIES RUNS
    python benchmarks/contest_fits.py table FAMILIES RUNS... > RESULT.md

Families have known true values (``contest_truth.py``), so that a search takes no longer
than its own arithmetic. A search of ours is the whole study, as a user gets it who sets
nothing (``ours``) or one thing (the other names of ``OURS``). Opponents are those of
``mergekit-map compare``, which begin where they like here; ``contest.py`` has all begin
with the same merges. The result is kept in ``results/contest_fits.md``.

Kept are a line per search: what was measured, in order; the front and the chosen point;
how well the fits do on unseen merges. What is there is not run again, so that a line to
be renewed is one to be removed.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from contest import evaluator, study_of
from contest_fits_table import table
from contest_truth import REAL, SCENES, UNSEEN, Array, Truth, scene, unseen_merges
from records import append, missing

from mergekit_map.compare.budget import Budget
from mergekit_map.compare.indicators import r_squared
from mergekit_map.compare.opponents import OPPONENTS
from mergekit_map.config.schema import SearchSpec
from mergekit_map.errors import DesignError
from mergekit_map.results.findings import predictions
from mergekit_map.results.log import by_merge, open_log
from mergekit_map.search.finish import found_front
from mergekit_map.search.loop import run_study

OURS: dict[str, dict[str, Any]] = {
    "ours": {},
    "at_once": {"refine": False},
    "quadratic": {"surrogate": "quadratic", "refine": False},
    "regularized": {"surrogate": "regularized", "refine": False},
    "residual_gp": {"surrogate": "residual_gp", "refine": False},
    "refined": {"surrogate": "regularized", "refine": True},
}
BUDGETS = {
    2: (6, 8, 10, 12, 14, 16, 20, 30),
    3: (8, 10, 16, 25, 40),
    4: (10, 14, 20, 25, 40),
    7: (16, 24, 36, 60),
}
# Ours measures some merges of its front on top, so that opponents may have more.
EXTRA = 10
# The first n points are what it has after n: one run does for all budgets.
SEQUENTIAL = frozenset({"random", "sobol", "qlognehvi", "optuna"})
SLOWEST, SLOWEST_D, SLOWEST_BUDGET = "qlognehvi", 4, 40
NORMAL_95 = 1.96


def our_search(truth: Truth, name: str, budget: int, seed: int) -> dict[str, Any]:
    """Run a whole study, and see what its surrogates know of unseen merges."""
    spec = SearchSpec(evaluations=budget, seed=seed, **OURS[name])
    study = study_of(truth, spec)
    with tempfile.TemporaryDirectory() as folder, open_log(Path(folder) / "log") as log:
        try:
            result = run_study(study, evaluator(study, truth), log, lambda _: None)
        except DesignError as error:
            return {"refused": str(error)}
        poor = predictions(found_front(study, result, log)).poor
        measured = [dict(key) for key in by_merge(log)]
        roles = [e.role for e in log if e.task == truth.names[0]]
    unseen = unseen_merges(truth.bounds)
    surrogates = result.surrogates.values()
    predicted = np.column_stack([s.predict(unseen) for s in surrogates])
    stderr = np.column_stack([s.stderr(unseen) for s in surrogates])
    return {
        "measured": study.vectors(measured).tolist(),
        "searched": sum(role != "front" for role in roles),
        "front": study.vectors(result.front).tolist(),
        "selected": result.selected,
        "said": [task in poor for task in truth.names],
        **scores(truth, predicted, stderr),
    }


def scores(truth: Truth, predicted: Array, stderr: Array) -> dict[str, Any]:
    """Score predictions (UNSEEN, m) of the unseen merges, task by task."""
    Y = truth.predict(unseen_merges(truth.bounds))
    r2 = [r_squared(y, p) for y, p in zip(Y.T, predicted.T, strict=True)]
    covered = np.abs(Y - predicted) <= NORMAL_95 * stderr
    return {"r2": r2, "covered": covered.mean(axis=0).tolist()}


def opponent(truth: Truth, name: str, budget: int, seed: int) -> dict[str, Any]:
    """Let an opponent spend the budget."""
    allowed = Budget(truth.utilities, truth.bounds, len(truth.names), budget)
    OPPONENTS[name](allowed, np.random.default_rng(seed))
    return {"measured": allowed.X.tolist(), "sequential": name in SEQUENTIAL}


METHODS = (*OURS, *OPPONENTS)


def jobs(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """List the searches asked for, seed by seed."""
    for seed in range(arguments.seeds):
        for family in arguments.families:
            d = {**SCENES, **REAL}[family].d
            for method in arguments.methods:
                for budget in _budgets(method, d, arguments.budgets):
                    key = {"family": family, "method": method}
                    yield {**key, "budget": budget, "seed": seed}


def _budgets(method: str, d: int, wanted: Sequence[int] | None) -> Sequence[int]:
    if method == SLOWEST:
        return (SLOWEST_BUDGET,) if d <= SLOWEST_D else ()
    budgets = BUDGETS[d]
    if method in SEQUENTIAL:
        return (budgets[-1] + EXTRA,)
    if method in OPPONENTS:
        return (*budgets, budgets[-1] + EXTRA)
    return [b for b in budgets if b in (wanted or budgets)]


def _run(families: Path, key: dict[str, Any]) -> dict[str, Any]:
    truth = _truth(families, key["family"])
    method, search = key["method"], (key["budget"], key["seed"])
    started = time.perf_counter()
    if method in OURS:
        outcome = our_search(truth, method, *search)
    else:
        outcome = opponent(truth, method, *search)
    return {**key, **outcome, "seconds": time.perf_counter() - started}


@functools.lru_cache(maxsize=1)
def _truth(families: Path, name: str) -> Truth:
    return scene(families, name)


def run(arguments: argparse.Namespace) -> None:
    """Do all searches that the record does not have yet, two at a time."""
    path: Path = arguments.runs
    left = missing(path, jobs(arguments))
    work = functools.partial(_run, arguments.families_folder)
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for outcome in pool.imap_unordered(work, left):
            append(path, outcome)
            shown = list(outcome.values())[:4]
            print(*shown, f"{outcome['seconds']:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(call=run)
    command.add_argument("families_folder", type=Path)
    command.add_argument("runs", type=Path, help="a .jsonl file")
    command.add_argument("--families", nargs="+", default=list(SCENES))
    command.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    command.add_argument("--budgets", nargs="+", type=int, help="of ours")
    command.add_argument("--seeds", type=int, default=5)
    command.add_argument("--processes", type=int, default=2)
    command = commands.add_parser("table")
    command.set_defaults(call=lambda a: print(table(a.families_folder, a.runs, UNSEEN)))
    command.add_argument("families_folder", type=Path)
    command.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
