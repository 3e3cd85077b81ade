"""Comparing finished searches with other ways to a merge: the paper's tables.

For every run its front is measured, and the same merges are searched by others: all of
it with the run's own evaluator, into its own log, so that nothing is measured twice. A
search that goes on later does not fit any of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mergekit.options import MergeOptions
from numpy.typing import NDArray

from mergekit_map.compare.baseline_merges import fine_tuned_models
from mergekit_map.compare.baselines import Terms, count_baselines, measure_baselines
from mergekit_map.compare.bench import Bench
from mergekit_map.compare.contest import (
    OURS,
    ComparisonSpec,
    Contest,
    check_contest,
    check_opponents,
    front_scores,
    hold_contest,
    r_squared_scores,
)
from mergekit_map.compare.indicators import draw_preferences
from mergekit_map.compare.paper_tables import comparison_tables
from mergekit_map.compare.scores import (
    DRAWS,
    REPEATS,
    as_they_are,
    best_merges,
    best_rows,
    by_ideal_and_nadir,
    mean_and_std,
    weighted_sums,
)
from mergekit_map.compare.tables import Table, write_table
from mergekit_map.errors import ConfigError
from mergekit_map.files import write_json
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.log import open_log, read_log
from mergekit_map.results.records import read_record
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import Surrogates
from mergekit_map.search.selection import spread
from mergekit_map.steps.project import Project, finished_project
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Reporter, Study

FloatArray = NDArray[np.float64]

MOST_POINTS = 100  # of a front that are measured: the paper's K


def compare_runs(
    runs: Sequence[Path],
    out: Path,
    spec: ComparisonSpec,
    options: MergeOptions,
    reporter: Reporter,
) -> list[Table]:
    """Measure what is missing and write the tables, as Markdown and CSV, to ``out``.

    Raises:
        ArtifactError: a search is not finished, or a file cannot be written.
        ConfigError: there is no such opponent, or a configuration cannot be used.
        EvaluationError: a front or an opponent cannot be measured.
        MergeError: models or tasks have changed since a search.
    """
    check_opponents(spec)
    projects = [_comparable(run, options, spec) for run in runs]
    for project in projects:
        check_contest(project.study(), spec)
    fronts = [RunFolder(run).read_front() for run in runs]
    for run, project, front in zip(runs, projects, fronts, strict=True):
        _say_what_it_costs(run, project, front, spec, reporter)
    percent = all(map(_are_shares, fronts))
    found = [
        _compare(run, project, front, spec, reporter, percent=percent)
        for run, project, front in zip(runs, projects, fronts, strict=True)
    ]
    content = {
        "version": 1,
        "budget": spec.budget,
        "preferences": spec.preferences,
        "seed": spec.seed,
        "draws": DRAWS,
        "repeats": REPEATS,
        "unit": "percent" if percent else "scaled",
        "runs": [
            {"name": name, **numbers}
            for name, numbers in zip(_names(runs), found, strict=True)
        ],
    }
    tables = comparison_tables(content)
    for table in tables:
        write_table(table, out)
    write_json(out / "comparison.json", content)
    return tables


def _comparable(run: Path, options: MergeOptions, spec: ComparisonSpec) -> Project:
    project = finished_project(run, options, trust_run=spec.trust_run)
    if project.nests_checkpoints:
        raise ConfigError(
            f"{run} merged checkpoints pair by pair, so that its front lies in no box "
            "that others can search; compare a search with another strategy, or with a "
            "method that elects no signs, such as dare_linear"
        )
    return project


def _compare(
    run: Path,
    project: Project,
    front: Front,
    spec: ComparisonSpec,
    reporter: Reporter,
    *,
    percent: bool,
) -> dict[str, Any]:
    """Measure all that a run is held against; what comparison.json has of it."""
    study = project.study()
    points = _shown(front)
    *merges, steps = _plan(project, front, spec).values()
    total = sum(merges) * len(study.tasks) + steps
    with open_log(RunFolder(run).log) as log:
        bench = Bench(run, log, reporter.progress, total)
        with bench.open(project) as measure:
            coefficients = [point.coefficients for point in points]
            contest = hold_contest(study, coefficients, spec, log, measure)
        terms = _terms(study, contest, spec, percent=percent)
        methods = measure_baselines(bench, project, terms, reporter.notice)
    for name, rival in contest.rivals.items():
        methods[name] = best_rows(rival.Y, terms.preferences, terms.scale)
    methods[OURS] = _as_predicted(contest, front.utilities(points, "predicted"), terms)
    return {
        "models": len(fine_tuned_models(project.space)),
        "coefficients": list(study.bounds),
        "tasks": list(study.tasks),
        "reference": {
            "points": len(contest.reference),
            "ideal": contest.reference.max(axis=0).tolist(),
            "nadir": contest.reference.min(axis=0).tolist(),
        },
        "fronts": front_scores(contest, spec),
        "r2": _unseen_r_squared(run, study, front, contest),
        "preference_vectors": terms.preferences.tolist(),
        "methods": {name: _sums(Y, terms) for name, Y in methods.items()},
    }


def _shown(front: Front) -> list[Merge]:
    """List the points that are measured: all, or as many that show the whole front."""
    predicted = front.utilities(front.points, "predicted")
    return [front.points[i] for i in sorted(spread(predicted, MOST_POINTS))]


def _terms(
    study: Study, contest: Contest, spec: ComparisonSpec, *, percent: bool
) -> Terms:
    """Draw the preferences, and say what they weigh."""
    m = len(study.tasks)
    rng = np.random.default_rng(spec.seed)
    scale = as_they_are(m) if percent else by_ideal_and_nadir(contest.reference)
    return Terms(draw_preferences(m, rng, spec.preferences), scale)


def _as_predicted(contest: Contest, predicted: FloatArray, terms: Terms) -> FloatArray:
    """Give every preference the point with the best predicted sum, as measured; (P, m).

    Among those that could be measured.
    """
    known = np.where(np.isnan(contest.points), np.nan, predicted)
    return contest.points[best_merges(known, terms.preferences, terms.scale)]


def _unseen_r_squared(
    run: Path, study: Study, front: Front, contest: Contest
) -> dict[str, Any]:
    """Score the surrogates; those of nested MAP know of no merges but of their pair."""
    if front.groups:
        return {"tasks": {}, "mean": None, "std": None}
    content = read_record(RunFolder(run).surrogates, Surrogates, "surrogates")
    return r_squared_scores(study, contest, content.values())


def _sums(Y: FloatArray, terms: Terms) -> dict[str, Any]:
    sums = weighted_sums(Y, terms.preferences, terms.scale)
    return {"sums": sums.tolist(), **mean_and_std(sums)}


def _plan(project: Project, front: Front, spec: ComparisonSpec) -> dict[str, int]:
    """Count what is measured, at most, by what it is for; merges, then steps."""
    merges, steps = count_baselines(project, spec.preferences)
    return {
        "of its front": min(len(front.points), MOST_POINTS),
        "by opponents": len(spec.rivals) * spec.budget,
        "of baselines": merges,
        "steps of AdaMerging": steps,
    }


def _say_what_it_costs(
    run: Path,
    project: Project,
    front: Front,
    spec: ComparisonSpec,
    reporter: Reporter,
) -> None:
    """Say how many merges will be measured, and how long the search took for such."""
    *merges, (what_steps, steps) = _plan(project, front, spec).items()
    total = sum(count for _, count in merges)
    study = project.study()
    known = matching(study, read_log(RunFolder(run).log))
    pace = sum(
        statistics.median(e.seconds for e in known if e.task == task)
        for task in study.tasks
    )
    parts = ", ".join(f"{count} {what}" for what, count in merges)
    more = f", and {steps} {what_steps}" if steps else ""
    reporter.notice(
        f"{run}: {total} merges to measure ({parts}){more}, less what the log has; "
        f"at the pace of the search that is {total * pace / 60:.1f} minutes"
    )


def _names(runs: Sequence[Path]) -> list[str]:
    """Name runs by their folders, with the one above where that is not unique."""
    names = [run.resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else f"{run.resolve().parent.name}/{name}"
        for name, run in zip(names, runs, strict=True)
    ]


def _are_shares(front: Front) -> bool:
    """Tell whether all metrics can be added up as they are, as the paper's can."""
    return all(
        (m.higher_is_better, m.lower, m.upper) == (True, 0, 1)
        for m in front.metrics.values()
    )
