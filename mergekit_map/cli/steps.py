"""Steps of several commands: search and merge, with their output.

Heavy modules are imported inside the functions, so that help is as fast as mergekit's.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from mergekit_map.cli.mergekit_options import MergeOptions
from mergekit_map.cli.options import N_SHOWN, starting
from mergekit_map.cli.output import answer, answer_front
from mergekit_map.types import BASE
from mergekit_map.utils.shutdown import deferred, stopped_by

if TYPE_CHECKING:
    from mergekit_map.cli.progress import TerminalReporter
    from mergekit_map.evaluation.project import Project
    from mergekit_map.results.front import Front
    from mergekit_map.results.log import Evaluation
    from mergekit_map.workflows.select import Selection


def search_and_show(
    config: Path,
    run: Path,
    options: MergeOptions,
    import_file: Path | None = None,
    again: Sequence[str] = (),
    *,
    model_paths: Mapping[str, str] = MappingProxyType({}),
    trust_run: bool = False,
    n_points: int = N_SHOWN,
    workers: int | str | None = None,
) -> Front:
    """Search as CONFIG says, going on where it was stopped, and print the front."""
    with starting():
        from mergekit_map.cli.progress import TerminalReporter
        from mergekit_map.cli.tables import show_front
        from mergekit_map.results.limits import unmet_limits
        from mergekit_map.workflows.search import search_front

    again = again or ["search", str(config), str(run)]
    again = [*again, *(f"--model-path={name}={f}" for name, f in model_paths.items())]
    again += [] if workers is None else [f"--workers={workers}"]
    reporter = TerminalReporter()
    try:
        project, imported = checked(
            config,
            options,
            reporter,
            import_file,
            model_paths=model_paths,
            trust_run=trust_run,
        )
        with deferred(), reporter:
            found = search_front(project, run, reporter, imported, workers=workers)
            front = found.front
    except KeyboardInterrupt as stop:
        typed = shlex.join(["mergekit-map", *again])
        stop.args = ("\n".join(_stopped(run, reporter, typed, stopped_by(stop))),)
        raise
    answer_front(run, front, run)
    show_front(front, n_points)
    if unmet_limits(front):
        click.echo(f"warning: {front.reason}", err=True)
    return front


def checked(
    config: Path,
    options: MergeOptions,
    reporter: TerminalReporter,
    import_file: Path | None,
    *,
    model_paths: Mapping[str, str],
    trust_run: bool,
) -> tuple[Project, list[Evaluation]]:
    """Load the project of CONFIG, and read imported measurements."""
    from mergekit_map.evaluation.project import load_project
    from mergekit_map.search.import_csv import read_imported
    from mergekit_map.utils.progress import notifying, stage

    checking = f"checking models and tasks of {config}"
    with reporter, notifying(reporter), stage(checking):
        project = load_project(
            config, options, trust_run=trust_run, model_paths=model_paths
        )
        study = project.study()
    for note in project.notes:
        reporter.notice(note)
    return project, read_imported(import_file, study) if import_file else []


def _stopped(
    run: Path, reporter: TerminalReporter, again: str, stopped: str
) -> Iterator[str]:
    """Print how far a stopped search is, and how to use it."""
    from mergekit_map.results.run_folder import RunFolder
    from mergekit_map.results.search_plan import read_search_plan

    folder, place = RunFolder(run), shlex.quote(str(run))
    if not (reporter.done and folder.plan.exists()):
        yield f"{stopped} before anything was measured. Go on with: {again}"
        return
    yield (
        f"{stopped} at {reporter.done} of at most {reporter.total} measurements, which "
        "are kept."
    )
    if read_search_plan(folder).recipe is not None:
        yield f"Look at what they say: mergekit-map report {place}"
        yield f"Choose of it: mergekit-map select {place} --prefer TASK=WEIGHT"
        yield f"Merge it: mergekit-map merge {place} OUT"
    yield f"Go on with: {again}"


def merge_and_show(
    run: Path,
    out: Path,
    selection: Selection,
    options: MergeOptions,
    *,
    model_paths: Mapping[str, str] = MappingProxyType({}),
    trust_run: bool = False,
) -> None:
    """Write the checkpoint of a selection, and print its gains and the next steps."""
    with starting():
        from mergekit_map.cli.hints import after_merge, show_steps
        from mergekit_map.cli.progress import TerminalReporter
        from mergekit_map.cli.tables import show_merged
        from mergekit_map.results.run_folder import RunFolder
        from mergekit_map.workflows.merge import merge_point

    with TerminalReporter() as reporter:
        merged = merge_point(
            run,
            out,
            selection,
            options,
            reporter,
            trust_run=trust_run,
            model_paths=model_paths,
        )
    answer_front(run, merged.front, out)
    answer(model=str(out), command=merged.command)
    front = RunFolder(run).read_front()
    show_merged(front.with_point(selection.index, merged.point), out)
    click.echo(f"\nThe same checkpoint with mergekit alone:\n  {merged.command}")
    has_base = any(anchor.label == BASE for anchor in front.anchors)
    show_steps(after_merge(run, out, list(front.tasks), has_base=has_base))
