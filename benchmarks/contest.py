"""The contest: every method pays for every merge whose value it shows.

    python benchmarks/contest_families.py FAMILIES n2_wide n3_wide n4 n5 n6 n7 n8
    python benchmarks/contest.py run FAMILIES RUNS
    python benchmarks/contest.py table FAMILIES RUNS > docs/results/contest.md

Families of two to eight models have known true values (``contest_truth.py``). What the
methods are, and who has a limit of time, the page of the table says
(``contest_table.py``). Opponents are those of ``mergekit-map compare``. Kept is a line
per search; what is there is not run again.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from contest_table import ASKED, FAMILIES, MARKS, NAMES, OURS, preferences, table
from contest_truth import Array, Truth, anchor_merges, plain_design, scene
from records import parsers, run_missing
from scipy.stats import qmc
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from mergekit_map import Measurement
from mergekit_map.compare.opponents import OPPONENTS, Budget
from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.optimize.nsga3 import compute_front
from mergekit_map.optimize.scalarization import farthest_point_subset
from mergekit_map.results.limits import Anchors
from mergekit_map.results.log import Evaluation, by_merge, open_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.loop import run_study
from mergekit_map.search.study import Evaluator, Study, StudyResult
from mergekit_map.types import BASE, SOUP, Answers

# Of our search, by coefficients, the first to be done first: 50 merges with those of
# its end, what fits into 20, and its default where that is more.
SEARCHES = {
    d: (44, other)
    for d, other in zip(range(2, 9), (12, 14, 14, 14, 56, 72, 90), strict=True)
}
AT_THE_END = 6  # merges of its front that our search measures at most
PLANNING = ("grid", "moead", "nsga2", "nsga3", "sms_emoa")
SEEDS = 5
SECONDS = 60
_CANDIDATES = 12  # log2 of the merges among which a forest finds its front
_DIGITS = 6


class Timed(Budget):
    """A budget that is also used up after some seconds of processor time."""

    def __init__(self, *given: Any, seconds: float) -> None:
        super().__init__(*given)
        self._end = time.process_time() + seconds

    def spend(self, U: Array) -> Array:
        Y = super().spend(U)
        if time.process_time() > self._end:
            self.left = 0
        return Y


def study_of(truth: Truth, spec: SearchSpec) -> Study:
    """Describe a family as a project does."""
    d = len(truth.bounds)
    names = [f"c{i}" for i in range(d)]
    anchors = dict(zip([BASE, *truth.names, SOUP], anchor_merges(d), strict=True))
    return Study(
        bounds=dict(zip(names, map(tuple, truth.bounds.tolist()), strict=True)),
        anchors={
            label: dict(zip(names, row.tolist(), strict=True))
            for label, row in anchors.items()
        },
        tasks=dict.fromkeys(truth.names, truth.metric),
        definitions={task: task for task in truth.names},
        merge="contest",
        search=spec,
        select=SelectSpec(),
    )


class Documents:
    """The truth of a family in the place of models, document by document."""

    def __init__(self, study: Study, truth: Truth):
        self._study, self._truth = study, truth
        self._kept: dict[tuple[tuple[float, ...], str], Answers] = {}

    def __call__(
        self,
        coefficients: Mapping[str, float],
        task: str,
        documents: tuple[int, ...] | None = None,
    ) -> Measurement:
        """Measure as a task does."""
        merge = tuple(self._study.vector(coefficients))
        values = self._all(merge)[self._truth.names.index(task)]
        ids = tuple(range(len(values))) if documents is None else documents
        scores = values[list(ids)]
        answers = Answers(ids, tuple(scores.tolist()), (1.0,) * len(ids))
        self._kept[merge, task] = answers
        stderr = float(scores.std(ddof=1) / np.sqrt(len(ids)))
        return Measurement(float(scores.mean()), stderr, len(ids), answers=answers)

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Return the scores of a merge that was measured last."""
        return self._kept.get((tuple(self._study.vector(coefficients)), task))

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def _all(self, merge: tuple[float, ...]) -> Array:
        return self._truth.items(np.array([merge]))[0]  # (m, b)


def run_search(
    study: Study, evaluate: Evaluator
) -> tuple[StudyResult, list[Evaluation]]:
    """Run a whole study; returns its result and its log."""
    with tempfile.TemporaryDirectory() as path, open_log(RunFolder(Path(path))) as log:
        return run_study(study, evaluate, log), list(log)


def search_as_a_user(truth: Truth, budget: int, seed: int, *, asks: bool) -> Any:
    """Run a whole study; its front comes in the order in which it is paid for.

    A user who ``asks`` pays first for what ``select --prefer`` gives preferences.
    """
    study = study_of(truth, SearchSpec(evaluations=budget, seed=seed))
    result, log = run_search(study, Documents(study, truth))
    measured = study.vectors([dict(key) for key in by_merge(log)])
    front = study.vectors(result.front)

    def predict(X: Array) -> Array:
        values = [surrogate.predict(X) for surrogate in result.surrogates.values()]
        return truth.metric.sign * np.column_stack(values)

    front = front[farthest_point_subset(predict(front), len(front))]
    wanted = preferences(len(truth.names)) if asks else ()
    chosen = [_asked(study, result, front, weights) for weights in wanted]
    return measured, np.vstack([*chosen, front])


def _asked(study: Study, result: StudyResult, front: Array, weights: Array) -> Array:
    select = SelectSpec(prefer=dict(zip(study.tasks, weights.tolist(), strict=True)))
    asked = replace(study, select=select)
    X, index = asked.choose(result.surrogates, front, Anchors({}))
    return np.asarray(X[index])


def _fitted_process(U: Array, y: Array, seed: int) -> GaussianProcessRegressor:
    """Fit a Gaussian process of one task on the unit box."""
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(
        np.ones(U.shape[1]), (0.05, 50.0), 2.5
    )
    process = GaussianProcessRegressor(
        kernel + WhiteKernel(1e-3, (1e-8, 1.0)),
        normalize_y=True,
        n_restarts_optimizer=4,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # The end of a range is an answer like any other.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return process.fit(U, y)


def plain_process(truth: Truth, budget: int, seed: int) -> Any:
    """Fit a Gaussian process per task to a plain design, and find the front of them."""
    X, upper = plain_design(truth.bounds, budget, seed), truth.bounds[:, 1]
    fits = [_fitted_process(X / upper, y, seed) for y in truth.utilities(X).T]

    def predict(points: Array) -> Array:
        return np.column_stack([process.predict(points / upper) for process in fits])

    front = compute_front(predict, truth.bounds, seed=seed)
    return X, front[farthest_point_subset(predict(front), len(front))]


def forest(truth: Truth, budget: int, seed: int) -> Any:
    """Fit a random forest per task, and find the front of it among Sobol points."""
    X = plain_design(truth.bounds, budget, seed)
    sobol = qmc.Sobol(len(truth.bounds), seed=seed).random_base2(_CANDIDATES)
    candidates = sobol * truth.bounds[:, 1]
    forests = [
        RandomForestRegressor(random_state=seed).fit(X, y) for y in truth.utilities(X).T
    ]
    predicted = np.column_stack([one.predict(candidates) for one in forests])
    best = non_dominated(predicted)
    front = candidates[best]
    return X, front[farthest_point_subset(predicted[best], min(len(front), MARKS[-1]))]


def opponent(truth: Truth, name: str, budget: int, seed: int, seconds: float) -> Array:
    """Let an opponent spend what our first merges leave of the budget."""
    d, m = len(truth.bounds), len(truth.names)
    allowed = Timed(truth.utilities, truth.bounds, m, budget, seconds=seconds)
    allowed.spend(anchor_merges(d) / truth.bounds[:, 1])
    OPPONENTS[name](allowed, np.random.default_rng(seed))
    return allowed.X


def jobs(arguments: Namespace) -> Iterator[dict[str, Any]]:
    """List the searches: what tells most first, seed by seed."""
    for place, seed, method, family in itertools.product(
        range(len(MARKS)), range(arguments.seeds), arguments.methods, arguments.families
    ):
        budgets = _budgets(method, FAMILIES[family])
        if place < len(budgets):
            key = {"family": family, "method": method}
            yield {**key, "budget": budgets[place], "seed": seed}


def _budgets(method: str, d: int) -> tuple[int, ...]:
    if method == OURS:
        return SEARCHES[d]
    if method == ASKED:
        return SEARCHES[d][:1]
    if method in ("gp", "forest"):
        return tuple(n + AT_THE_END for n in SEARCHES[d])
    return MARKS if method in PLANNING else MARKS[-1:]


def do(families: Path, key: dict[str, Any], seconds: float) -> Any:
    """Do one search; returns what it came to."""
    truth = scene(families, key["family"])
    method, search = key["method"], (key["budget"], key["seed"])
    front: Any = np.empty((0, 0))
    if method in (OURS, ASKED):
        measured, front = search_as_a_user(truth, *search, asks=method == ASKED)
    elif method in ("gp", "forest"):
        fit = plain_process if method == "gp" else forest
        measured, front = fit(truth, *search)
    else:
        measured = opponent(truth, method, *search, seconds)
    return {
        "measured": np.round(measured, _DIGITS).tolist(),
        "front": np.round(front, _DIGITS).tolist(),
        "limit": seconds,
    }


def run(arguments: Namespace) -> None:
    """Do the searches that the record does not have yet."""
    search = functools.partial(do, arguments.folder, seconds=arguments.seconds)
    run_missing(arguments.runs, jobs(arguments), search)


def main() -> None:
    parser, running, reading = parsers(
        __doc__, run, lambda a: print(table(a.folder, a.runs)), SEEDS
    )
    running.add_argument("--families", nargs="+", default=list(FAMILIES))
    running.add_argument("--methods", nargs="+", choices=NAMES, default=[*NAMES])
    running.add_argument("--seconds", type=float, default=SECONDS)
    reading.add_argument("folder", type=Path)
    reading.add_argument("runs", type=Path)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
