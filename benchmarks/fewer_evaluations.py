"""How many evaluations a trustworthy front takes: ours against every opponent's.

    python benchmarks/family8.py FAMILY
    python benchmarks/fewer_evaluations.py measure FAMILY RUNS --sizes 2 3 4 6 8
    python benchmarks/fewer_evaluations.py table RUNS > fewer_evaluations.md

Merges the first N models of the family and measures them on their own N texts. Every
search is repeated with several seeds. What is measured is kept in RUNS, a file per N,
so that a stopped benchmark goes on where it was.

A search of ours is the whole study, anchors counted (at budgets below their number, the
first of them). Its front is what it predicts; for the comparison, and at no charge, all
of it is measured. An opponent's front is the best of what it has measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from family8 import config
from family8_text import DOMAINS
from fewer_evaluations_table import REFERENCE, table
from scipy.stats import qmc

from mergekit_map import Measurement, Project, load_project
from mergekit_map.compare.budget import Budget
from mergekit_map.compare.indicators import r_squared
from mergekit_map.compare.opponents import OPPONENTS
from mergekit_map.results.log import evaluation_key
from mergekit_map.results.opened_log import open_log
from mergekit_map.search.fit import fit_surrogate
from mergekit_map.search.links import Link
from mergekit_map.steps.evaluate import merges_in_memory
from mergekit_map.study.fitting import predicted_front
from mergekit_map.study.running import run_study
from mergekit_map.study.study import Evaluator, Study

OURS: dict[str, dict[str, Any]] = {
    "plain": {"surrogate": "regularized"},
    "least squares": {"surrogate": "quadratic"},
    "gradients": {"surrogate": "regularized", "gradients": True},
    "bayesian": {"strategy": "bayesian", "surrogate": "regularized"},
    "nested": {"strategy": "nested"},
}
# In evaluations. Anchors are N + 2 of them; a nested search says itself what it costs.
BUDGETS = {
    "plain": {
        2: (4, 6, 8, 12),
        3: (6, 10, 13, 20),
        4: (8, 12, 15, 20, 30),
        6: (12, 20, 28, 36, 60),
        8: (16, 30, 45, 60, 90),
    },
    "least squares": {2: (8,), 3: (13,), 4: (20,), 6: (36,), 8: (60,)},
    "gradients": {
        2: (3, 4),
        3: (4, 6),
        4: (5, 6, 7, 8),
        6: (7, 9, 12),
        8: (9, 10, 12, 16),
    },
    "bayesian": {2: (10, 13, 16), 3: (13, 16, 22)},
    "nested": {n: (20,) for n in (2, 3, 4, 6, 8)},
}
UNSEEN = 64
MOST_FITTED = 1500  # merges, for the front that knows everything
MAX_TOKENS = 512  # of each text: the blocks that every merge is measured on


@dataclass
class Truth:
    """Real measurements of one family, each taken once; kept in a file."""

    study: Study
    path: Path
    known: dict[Any, Measurement]
    evaluators: Mapping[bool, Evaluator]  # with gradients or without

    def __call__(self, coefficients: Mapping[str, float], task: str) -> Measurement:
        return self._measure(coefficients, task, gradients=False)

    def with_gradients(
        self, coefficients: Mapping[str, float], task: str
    ) -> Measurement:
        """Measure the derivatives as well."""
        return self._measure(coefficients, task, gradients=True)

    def utilities(self, X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Measure all tasks at the rows of X (n, d), larger is better; (n, m)."""
        named = [self.study.named(row) for row in X]
        values = [[self(c, task).value for task in self.study.tasks] for c in named]
        return -np.array(values).reshape(len(X), len(self.study.tasks))

    def _measure(
        self, coefficients: Mapping[str, float], task: str, *, gradients: bool
    ) -> Measurement:
        key = (*evaluation_key(coefficients, task), gradients)
        if key not in self.known:
            measured = self.evaluators[gradients](coefficients, task)
            self.known[key] = replace(measured, samples=())
            record = [dict(coefficients), task, gradients, measured.value]
            record += [measured.stderr, measured.n, measured.gradient]
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        return self.known[key]


def read_known(path: Path) -> dict[Any, Measurement]:
    """Read what an earlier run has measured."""
    known = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        coefficients, task, gradients, value, stderr, n, gradient = json.loads(line)
        measured = Measurement(value, stderr, n, gradient=gradient)
        known[(*evaluation_key(coefficients, task), gradients)] = measured
    return known


def in_memory(project: Project, stack: ExitStack) -> Evaluator:
    """Merge and measure as a search does, but keep no record of every block of text."""
    merges = stack.enter_context(merges_in_memory(project))
    last: dict[str, Any] = {}

    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        if last.get("coefficients") != coefficients:
            last.update(coefficients=coefficients, measures=merges.at(coefficients))
        return last["measures"][task]()

    return evaluate


def open_truth(family: Path, size: int, runs: Path, stack: ExitStack) -> Truth:
    """Load the first ``size`` models of the family, twice: gradients need their own."""
    evaluators = {}
    for gradients in (False, True):
        content = config(
            family,
            DOMAINS[:size],
            DOMAINS[:size],
            max_tokens=MAX_TOKENS,
            gradients=gradients,
        )
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (scratch / "config.yml").write_text(yaml.safe_dump(content, sort_keys=False))
        project = load_project(scratch / "config.yml")
        evaluators[gradients] = in_memory(project, stack)
    path = runs / f"truth-{size}.jsonl"
    return Truth(project.study(), path, read_known(path), evaluators)


def our_runs(truth: Truth, seeds: int, unseen: np.ndarray[Any, Any]) -> Iterator[Any]:
    """Search with every strategy, seed and budget; yields what to record."""
    size = len(truth.study.bounds)
    Y = truth.utilities(unseen)
    for name, seed in itertools.product(OURS, range(seeds)):
        for budget in BUDGETS[name].get(size, ()):
            key = {"size": size, "method": name, "seed": seed, "budget": budget}
            yield (
                key,
                lambda n=name, s=seed, b=budget: _our_run(truth, n, s, b, unseen, Y),
            )


def _our_run(
    truth: Truth,
    name: str,
    seed: int,
    budget: int,
    unseen: np.ndarray[Any, Any],
    Y: np.ndarray[Any, Any],
) -> dict[str, Any]:
    spec = truth.study.search.model_copy(
        update={
            "gradients": False,
            **OURS[name],
            "evaluations": budget,
            "seed": seed,
            "remeasure": 0,
        }
    )
    anchors = dict(list(truth.study.anchors.items())[:budget])
    study = replace(truth.study, search=spec, anchors=anchors)
    evaluate = truth.with_gradients if spec.gradients else truth
    with tempfile.TemporaryDirectory() as folder, open_log(Path(folder) / "log") as log:
        started = time.perf_counter()
        result = run_study(study, evaluate, log, lambda _: None)
        seconds = time.perf_counter() - started
        searched = sum(e.role != "front" for e in log)
    front = np.array([study.vector(c) for c in result.front])
    r2 = None
    if not result.stages:
        predicted = [-s.predict(unseen) for s in result.surrogates.values()]
        r2 = [r_squared(y, p) for y, p in zip(Y.T, predicted, strict=True)]
    return {
        "evaluations": searched / len(study.tasks),
        "r2": r2,
        "front": truth.utilities(front).tolist(),
        "seconds": seconds,
    }


def reference_runs(truth: Truth, seeds: int) -> Iterator[Any]:
    """Find the fronts of surrogates that are fitted to all that was ever measured."""
    size = len(truth.study.bounds)
    for seed in range(seeds):
        key = {"size": size, "method": REFERENCE, "seed": seed, "budget": 0}
        yield key, lambda s=seed: _reference_run(truth, s)


def _reference_run(truth: Truth, seed: int) -> dict[str, Any]:
    study = truth.study
    values: dict[Any, dict[str, float]] = defaultdict(dict)
    for (coefficients, task, gradients), measured in truth.known.items():
        if not gradients:
            values[coefficients][task] = measured.value
    whole = [c for c, found in values.items() if len(found) == len(study.tasks)]
    chosen = np.random.default_rng(seed).permutation(len(whole))[:MOST_FITTED]
    X = np.array([study.vector(dict(whole[i])) for i in chosen])
    surrogates = {
        task: fit_surrogate(
            X,
            np.array([values[whole[i]][task] for i in chosen]),
            stderr=None,
            link=Link(),
            bounds=study.box,
        )
        for task in study.tasks
    }
    spec = study.search.model_copy(update={"seed": seed})
    front = predicted_front(replace(study, search=spec), surrogates)
    return {"fitted": len(chosen), "front": truth.utilities(front).tolist(), "r2": None}


def opponent_runs(
    truth: Truth, seeds: int, budget: int, names: Sequence[str]
) -> Iterator[Any]:
    """Let every opponent use its whole budget on the real metrics."""
    size = len(truth.study.bounds)
    for name, seed in itertools.product(names, range(seeds)):
        key = {"size": size, "method": name, "seed": seed, "budget": budget}
        yield key, lambda n=name, s=seed: _opponent_run(truth, n, s, budget)


def _opponent_run(truth: Truth, name: str, seed: int, budget: int) -> dict[str, Any]:
    seen: list[list[float]] = []

    def evaluate(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        Y = truth.utilities(X)
        seen.extend(Y.tolist())
        return Y

    started = time.perf_counter()
    allowed = Budget(evaluate, truth.study.box, len(truth.study.tasks), budget)
    OPPONENTS[name](allowed, np.random.default_rng(seed))
    return {"measured": seen, "seconds": time.perf_counter() - started}


def measure(arguments: argparse.Namespace) -> None:
    """Do all runs that the record does not have yet."""
    arguments.runs.mkdir(parents=True, exist_ok=True)
    for size in arguments.sizes:
        record = arguments.runs / f"runs-{size}.jsonl"
        lines = record.read_text().splitlines() if record.exists() else []
        done = [json.loads(line) for line in lines]
        with ExitStack() as stack:
            truth = open_truth(arguments.family, size, arguments.runs, stack)
            unseen = qmc.Sobol(size, seed=12345).random(UNSEEN)
            jobs = itertools.chain(
                our_runs(truth, arguments.seeds, unseen),
                opponent_runs(
                    truth, arguments.seeds, arguments.budget, arguments.opponents
                ),
                reference_runs(truth, arguments.seeds),
            )
            for key, job in jobs:
                if not any(key.items() <= entry.items() for entry in done):
                    _record(record, key, job)


def _record(path: Path, key: dict[str, Any], job: Callable[[], dict[str, Any]]) -> None:
    started = time.perf_counter()
    outcome = job()
    with path.open("a") as file:
        file.write(json.dumps({**key, **outcome}) + "\n")
    print(*key.values(), f"{time.perf_counter() - started:.1f} s", file=sys.stderr)


def main() -> None:
    """Measure, or write the table of what was measured."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure")
    command.add_argument("family", type=Path)
    command.add_argument("runs", type=Path)
    command.add_argument("--sizes", type=int, nargs="+", default=[2, 3, 4, 6, 8])
    command.add_argument("--seeds", type=int, default=5)
    command.add_argument("--budget", type=int, default=200)
    command.add_argument("--opponents", nargs="*", default=list(OPPONENTS))
    command.set_defaults(call=measure)
    command = commands.add_parser("table")
    command.add_argument("runs", type=Path)
    command.set_defaults(call=lambda arguments: print(table(arguments.runs)))
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
