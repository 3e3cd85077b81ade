"""What a search and a shard of it have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mergekit_map.config.parsing import raise_problems
from mergekit_map.errors import ConfigError
from mergekit_map.files import digest
from mergekit_map.merging.devices import best_device, choice_in_words
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, EvaluationLog
from mergekit_map.results.records import read_record
from mergekit_map.results.run_folder import Identities, Identity, RunFolder
from mergekit_map.results.underway import read_underway
from mergekit_map.steps.comparing_items import Records, with_differences
from mergekit_map.steps.confirming import Confirming, SplitEvaluator
from mergekit_map.steps.crew import Crew
from mergekit_map.steps.evaluate import merges_as_asked
from mergekit_map.steps.project import Project
from mergekit_map.steps.worker import Hands, Worker
from mergekit_map.study.callbacks import Started, Told
from mergekit_map.study.checking import select_problems
from mergekit_map.study.forecast import forecast, warn_of_budget
from mergekit_map.study.measuring import matching
from mergekit_map.study.outcome import found_front
from mergekit_map.study.running import run_study
from mergekit_map.study.study import Progress, Study, StudyResult


def project_for(
    run: Path, project: Project, told: Told, imported: Sequence[Evaluation]
) -> Project:
    """Take a project as a run folder knows it.

    Raises:
        ConfigError: it cannot be searched so.
    """
    if imported and project.held_out is not None:
        raise ConfigError(
            "what was measured elsewhere may be of documents that 'holdout' keeps "
            "apart; leave out one of them"
        )
    raise_problems(project.file, select_problems(project.outline()))
    if (before := _measured_before(RunFolder(run))) is not None:
        project = project.going_on(before)
    if words := choice_in_words(
        str(project.options.device), best_device(), was_open=project.open_device
    ):
        told.notice(words)
    if (known := RunFolder(run).identities).exists():
        kept = read_record(known, Identities, "list of earlier merges")
        if digest(project.identity) not in kept.merges:
            project = project.as_known(kept.merges.values())
    return project


def hands_for(project: Project, crew: Crew | None) -> Hands:
    """Give whoever measures: workers, where there are some."""
    if crew is not None:
        return crew.work_for(project)
    return Worker(merges_as_asked(project))


def measured_front(
    project: Project,
    run: Path,
    told: Told,
    study: Study,
    log: EvaluationLog,
    evaluate: SplitEvaluator,
) -> tuple[StudyResult, Front]:
    """Measure all that a search asks for, and give what it found."""
    report = _warning_of_budget(study, log, told)
    result = run_study(study, evaluate, log, report)
    records = Records.of(project, RunFolder(run))
    front = found_front(study, result, log)
    front = with_differences(front, project.tasks, records, log)
    confirming = Confirming(project, RunFolder(run), log, evaluate, told.progress)
    return result, confirming.front(front)


def _measured_before(run: RunFolder) -> Identity | None:
    """Give the merge that a search of this folder measured last."""
    if run.plan.exists():
        return read_underway(run).manifest.identity
    return run.read_manifest().identity if run.manifest.exists() else None


def _warning_of_budget(
    study: Study, log: EvaluationLog, told: Told
) -> Callable[[Progress], None]:
    """Report progress, and once the anchors are measured that a budget is too small."""
    warned = False

    def report(progress: Progress) -> None:
        nonlocal warned
        if not warned and progress.role != "anchor":
            warned = True
            if text := warn_of_budget(study, matching(study, log)):
                told.notice(text)
        told.progress(progress)

    return report


def started(project: Project, study: Study, run: Path, log: EvaluationLog) -> Started:
    """Say what a search sets out to do."""
    ahead = forecast(study, checkpoints=project.nests_checkpoints)
    return Started(
        run=run,
        config=project.file.content,
        coefficients=study.bounds,
        tasks=study.tasks,
        total=ahead.measurements,
        known=list(log),
        hours=study.search.hours,
        documents=study.search.documents,
    )
