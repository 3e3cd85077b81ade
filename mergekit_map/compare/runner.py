"""Comparison of finished searches with opponents and baselines: the paper's tables.

The points of each front are measured, and opponents search the same merges. All
measurements use the run's own evaluator and go into its own log, so that none is made
twice. A search that is continued later does not fit them: they have their own roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from mergekit.options import MergeOptions

from mergekit_map.compare.baselines import (
    count_baselines,
    fine_tuned_models,
    measure_baselines,
)
from mergekit_map.compare.contest import (
    OURS,
    OURS_PAID,
    Bench,
    ComparisonSpec,
    front_scores,
    own_merges,
    r_squared_scores,
    run_contest,
)
from mergekit_map.compare.indicators import (
    ComparedRun,
    Comparison,
    best_merges,
    draw_preferences,
    weighted_sums,
)
from mergekit_map.compare.opponents import check_opponents
from mergekit_map.compare.tables import Table, comparison_tables, csv_text, markdown
from mergekit_map.errors import ArtifactError
from mergekit_map.evaluation.project import Project, finished_project, quiet_options
from mergekit_map.optimize.scalarization import farthest_point_subset
from mergekit_map.report.page import run_names
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.log import open_log, read_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import fit_again, read_evaluations
from mergekit_map.search.study import Study
from mergekit_map.utils.files import StrPath, write_atomically, write_json
from mergekit_map.utils.progress import warn
from mergekit_map.workflows.callbacks import Callback, reporting


@dataclass(frozen=True, eq=False)
class _Search:
    run: RunFolder
    name: str  # in tables
    project: Project
    study: Study
    front: Front
    points: Sequence[Merge]  # of the front, those that are measured
    merges: int  # of front, opponents and baselines, at most


def compare_runs(
    runs: Sequence[StrPath],
    out: StrPath,
    spec: ComparisonSpec | None = None,
    options: MergeOptions | None = None,
    callbacks: Sequence[Callback] | None = None,
) -> list[Table]:
    """Measure what is missing and write the tables as Markdown and CSV to ``out``.

    Callbacks receive the progress; by default there is a ``ProgressLine``.

    Raises:
        ArtifactError: a search is not finished, or a file cannot be written.
        ConfigError: there is no such opponent, or a configuration cannot be used.
        EvaluationError: a front or an opponent cannot be measured.
        MergeError: models or tasks have changed since a search.
    """
    folders = [Path(run) for run in runs]
    spec, options = spec or ComparisonSpec(), quiet_options(options)
    with reporting(callbacks):
        searches = [
            _open(folder, name, options, spec)
            for folder, name in zip(folders, run_names(folders), strict=True)
        ]
        for search in searches:
            warn(
                f"{search.run.path}: {search.merges} merges to measure, of its front, "
                "by opponents and of baselines, less what the log has"
            )
        # Metrics that can be added up as they are, as the paper's can.
        percent = all(
            (metric.higher_is_better, metric.lower, metric.upper) == (True, 0, 1)
            for search in searches
            for metric in search.front.metrics.values()
        )
        comparison = Comparison(
            preferences=int(spec.preferences),  # NumPy's is no JSON
            seed=int(spec.seed),
            unit="percent" if percent else "scaled",
            runs=[_compare(search, spec, percent=percent) for search in searches],
        )
        tables = comparison_tables(comparison)
        for table in tables:
            write_atomically(Path(out) / f"{table.name}.md", markdown(table))
            write_atomically(Path(out) / f"{table.name}.csv", csv_text(table))
        write_json(Path(out) / "comparison.json", asdict(comparison))
        return tables


def _open(run: Path, name: str, options: MergeOptions, spec: ComparisonSpec) -> _Search:
    project = finished_project(
        run, options, trust_run=spec.trust_run, model_paths=spec.model_paths
    )
    study, folder = project.study(), RunFolder(run)
    check_opponents(spec.opponents, len(study.tasks))
    front = folder.read_front()
    if front.unfinished:
        raise ArtifactError(f"the search {run} is not finished; type its command again")
    predicted = front.utilities(front.points, "predicted")
    # All points, or as many that show the whole front.
    chosen = sorted(farthest_point_subset(predicted, spec.points))
    points = [front.points[i] for i in chosen]
    budget = spec.budget or len(own_merges(study, read_log(folder.log)))
    merges = len(points) + len(spec.rivals) * budget
    merges += count_baselines(project.space, spec.preferences)
    return _Search(folder, name, project, study, front, points, merges)


def _compare(search: _Search, spec: ComparisonSpec, *, percent: bool) -> ComparedRun:
    project, study, m = search.project, search.study, len(search.front.tasks)
    rng = np.random.default_rng(spec.seed)
    preferences = draw_preferences(m, rng, spec.preferences)
    with open_log(search.run) as log:
        bench = Bench(project, log, search.merges * m)
        with bench.open(project) as measure:
            points = [point.coefficients for point in search.points]
            contest = run_contest(study, points, spec, log, measure)
        # Shares count as they are, other metrics by their range on the joint front.
        ends = np.array([np.zeros(m), np.ones(m)]) if percent else contest.ends
        methods = measure_baselines(bench, preferences, ends)
    for name, rival in {**contest.rivals, OURS_PAID: contest.own}.items():
        methods[name] = rival.Y[best_merges(rival.Y, preferences, ends)]
    # Our front gives each preference the point with the best predicted sum.
    predicted = search.front.utilities(search.points, "predicted")
    known = np.where(np.isnan(contest.points), np.nan, predicted)
    methods[OURS] = contest.points[best_merges(known, preferences, ends)]
    evaluations = read_evaluations(search.run, search.front)
    # Those of nested MAP predict merges of their pair only.
    surrogates = {} if search.front.groups else fit_again(search.front, evaluations)
    sums = {k: weighted_sums(Y, preferences, ends) for k, Y in methods.items()}
    return ComparedRun(
        name=search.name,
        models=len(fine_tuned_models(project.space)),
        tasks=list(study.tasks),
        ideal=contest.reference.max(axis=0).tolist(),
        nadir=contest.ends[0].tolist(),
        fronts=front_scores(contest),
        r2=r_squared_scores(study, contest, surrogates),
        preference_vectors=preferences.tolist(),
        methods={name: found.tolist() for name, found in sums.items()},
    )
