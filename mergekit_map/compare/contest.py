"""A finished search and its opponents, measured on the same metrics (section 4).

Notation: ``d`` coefficients, ``m`` tasks, ``P`` preferences among them; metrics are
larger is better, NaN where a measurement failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from mergekit_map.compare.indicators import (
    FrontScores,
    front_of,
    generational_distance,
    hypervolume,
    scaled,
    win_rate,
)
from mergekit_map.compare.opponents import OPPONENTS, Budget
from mergekit_map.errors import EvaluationError, MergeError
from mergekit_map.evaluation.evaluator import MergeEvaluator, Worker, open_merges
from mergekit_map.evaluation.project import Project
from mergekit_map.merging.space import MergeSpace
from mergekit_map.report.overlay import joint_box
from mergekit_map.results.log import (
    Evaluation,
    EvaluationLog,
    Role,
    by_merge,
    merge_key,
)
from mergekit_map.results.surrogates import is_fitted
from mergekit_map.search.measure import matching, measure
from mergekit_map.search.study import Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.fit import Surrogates, r_squared
from mergekit_map.utils.files import StrPath
from mergekit_map.utils.progress import Progress, measuring, warn

Points: TypeAlias = Sequence[Mapping[str, float]]
# Measure merges unless the log has them; returns (k, m).
MeasureMerges: TypeAlias = Callable[[Role, Points], FloatArray]
OURS = "MAP"
OURS_PAID = "MAP, as paid"  # only what the search itself evaluated
DIRECT = "random"  # the opponent that is the paper's direct search


@dataclass(frozen=True)
class ComparisonSpec:
    """Opponents and baselines to compare with; direct search is always one."""

    opponents: tuple[str, ...] = (DIRECT, "moead")
    budget: int | None = None  # merges of each opponent; None for as many as the search
    preferences: int = 20
    seed: int = 0
    trust_run: bool = False  # whether the run folder may name code
    points: int = 100  # of the front that are measured, at most: the paper's K
    # Where models lie that lie elsewhere now, by name.
    model_paths: Mapping[str, StrPath] = field(default_factory=dict)

    @property
    def rivals(self) -> list[str]:
        """Name the opponents, the direct search first."""
        return list(dict.fromkeys([DIRECT, *self.opponents]))


@dataclass(frozen=True, eq=False)
class Searched:
    """The merges that a search evaluated, and their metrics on all documents."""

    X: FloatArray  # (n, d)
    Y: FloatArray  # (n, m)


@dataclass(frozen=True, eq=False)
class Contest:
    """The measurements of a search and of its opponents."""

    points: FloatArray  # (k, m) the front of the search
    own: Searched  # what the search itself evaluated
    rivals: Mapping[str, Searched]
    reference: FloatArray  # (r, m) what nothing of all this dominates

    @property
    def ends(self) -> FloatArray:
        """Return the worst and the best that count of each task; (2, m)."""
        Y = np.vstack([self.points, self.own.Y, *(r.Y for r in self.rivals.values())])
        nadir, width = joint_box([Y[~np.isnan(Y).any(axis=1)]])
        return np.array([nadir, nadir + width])


def own_merges(study: Study, log: Iterable[Evaluation]) -> list[Mapping[str, float]]:
    """List the merges that a search fits, imported ones among them."""
    fitted = filter(is_fitted, matching(study, log))
    merges = list({e.key[0]: e.coefficients for e in fitted}.values())
    is_inside = study.contains(study.vectors(merges))
    return [merge for merge, inside in zip(merges, is_inside, strict=True) if inside]


def run_contest(
    study: Study,
    points: Points,
    spec: ComparisonSpec,
    log: EvaluationLog,
    measure: MeasureMerges,
) -> Contest:
    """Measure the points of a front, and let every opponent use its budget."""
    ours = measure("front", points)
    if np.isnan(ours).any(axis=1).all():
        raise EvaluationError(
            f"none of the {len(ours)} points of the front could be measured; see the "
            f"errors in {log.path}"
        )
    merges = own_merges(study, log)
    own = Searched(study.vectors(merges), read_utilities(study, log, merges))

    def evaluate(X: FloatArray) -> FloatArray:
        return measure("opponent", [study.rounded(row) for row in X])

    rivals = {}
    for name in spec.rivals:
        allowed = spec.budget or len(merges)
        budget = Budget(evaluate, study.box, len(study.tasks), allowed)
        # By the opponent's name, so that others do not change what it draws.
        OPPONENTS[name](budget, np.random.default_rng([spec.seed, *name.encode()]))
        rivals[name] = Searched(budget.X, budget.Y)
    reference = front_of(ours, own.Y, *(rival.Y for rival in rivals.values()))
    return Contest(ours, own, rivals, reference)


def front_scores(contest: Contest) -> dict[str, FrontScores]:
    """Score all points of our front, and what is not dominated of each rival's."""
    own, ends = contest.own, contest.ends
    fronts = {OURS: contest.points[~np.isnan(contest.points).any(axis=1)]}
    if not np.isnan(own.Y).any(axis=1).all():
        fronts[OURS_PAID] = front_of(own.Y)
    fronts |= {name: front_of(rival.Y) for name, rival in contest.rivals.items()}
    whole = scaled(contest.reference, ends)
    scores = {}
    for name, front in fronts.items():
        points = scaled(front, ends)
        wins = {}
        if name in contest.rivals:
            wins["win_rate"] = win_rate(fronts[OURS], front)
            if OURS_PAID in fronts:
                wins["win_rate_paid"] = win_rate(fronts[OURS_PAID], front)
        scores[name] = FrontScores(
            evaluations=len(contest.rivals.get(name, own).X),
            points=len(front),
            hypervolume=hypervolume(points, whole),
            gd=generational_distance(points, whole),
            igd=generational_distance(whole, points),
            **wins,
        )
    return scores


def r_squared_scores(
    study: Study, contest: Contest, surrogates: Surrogates
) -> dict[str, float]:
    """Score the surrogates on the merges of direct search, which no fit has seen.

    NaN for a task without measurements, or with the same value everywhere.
    """
    direct = contest.rivals[DIRECT]
    seen = set(map(tuple, contest.own.X.tolist()))
    unseen = [tuple(row) not in seen for row in direct.X.tolist()]
    X, Y = direct.X[unseen], direct.Y[unseen]
    scores = {}
    for task, utility in zip(surrogates, Y.T, strict=False):
        known = ~np.isnan(utility)
        y = study.tasks[task].sign * utility[known]
        predicted = surrogates[task].predict(X[known])
        scores[task] = r_squared(y, predicted) if known.any() else np.nan
    return scores


def read_utilities(
    study: Study, log: Iterable[Evaluation], merges: Points
) -> FloatArray:
    """Read the metrics of merges (k, m), on all documents; NaN if unknown."""
    seen = by_merge(e for e in matching(study, log) if e.whole)
    return study.utilities(seen.get(merge_key(merge), {}) for merge in merges)


@dataclass(eq=False)
class Bench:
    """Measures merges of the models of a project for a comparison, into its log."""

    project: Project
    log: EvaluationLog
    total: int = 0  # measurements there will be, those in the log included
    done: int = 0  # once those under way are made

    def baseline(
        self, name: str, space: MergeSpace, points: Points = ({},)
    ) -> FloatArray:
        """Measure merges of another space; (k, m), NaN where mergekit refuses them.

        Without coefficients there is one, which stock mergekit writes to the disk.
        """
        spec = self.project.spec
        if not space.names:
            spec = spec.model_copy(update={"merge": "disk"})
        project = replace(self.project, spec=spec, space=space)
        try:
            with self.open(project) as measure:
                return measure("baseline", points)
        except (MergeError, EvaluationError) as error:
            warn(f"{name} has no numbers: {error}")
            return np.full((len(points), len(project.tasks)), np.nan)

    @contextmanager
    def open(self, project: Project) -> Iterator[MeasureMerges]:
        """Keep the models of a project loaded, from the first merge to measure on."""
        study, worker = project.study(), Worker(open_merges(project))
        folder = self.log.folder.samples(study.merge)
        with MergeEvaluator(worker, folder, study.definitions) as evaluate:

            def measure_merges(role: Role, points: Points) -> FloatArray:
                candidates = [(role, point) for point in points]
                self.done += len(candidates) * len(study.tasks)
                measure(study, candidates, evaluate, self.log, report=self._report)
                return read_utilities(study, self.log, points)

            yield measure_merges

    def _report(self, progress: Progress) -> None:
        done = self.done - progress.total + progress.done
        measuring(replace(progress, done=done, total=max(self.done, self.total)))
