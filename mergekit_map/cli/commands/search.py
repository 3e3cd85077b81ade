"""``mergekit-map search``, ``run`` and ``demo``: from a configuration to a front."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mergekit_map.cli.commands.select import merge_and_show
from mergekit_map.cli.config_options import config_or_options
from mergekit_map.cli.mergekit_options import MergeCommand, MergeOptions, merging
from mergekit_map.cli.options import (
    FILE,
    FOLDER,
    model_options,
    starting,
    typed_command,
    workers_option,
)
from mergekit_map.cli.output import answer_front, output_options, with_output_options
from mergekit_map.utils.files import refuse_existing, write_atomically
from mergekit_map.utils.shutdown import deferred, stopped_by

if TYPE_CHECKING:
    from mergekit_map.cli.progress import TerminalReporter
    from mergekit_map.results.front import Front


@click.command(cls=MergeCommand)
@with_output_options()
@config_or_options("run")
@click.option(
    "--import",
    "import_file",
    type=FILE,
    metavar="FILE.csv",
    help="Use evaluations that were measured elsewhere: a row per merge, a column per "
    "coefficient, a column named as each task, and 'TASK stderr' where it is known.",
)
@workers_option
@model_options
@merging("reading {config}", "config")
def search(
    merge_options: MergeOptions, run: Path, import_file: Path | None, **how: Any
) -> None:
    """Evaluate merges as CONFIG says, into the folder RUN, and find the front.

    A search that was stopped goes on where it was; one that is finished measures only
    what CONFIG asks for anew (more evaluations, another task).

    Without CONFIG, options say what it would; it is written to RUN.yml.

    Example: mergekit-map search merge.yml my-search
    """
    with starting():
        from mergekit_map.cli.screen import after_search, show_answer, show_steps

    front = find_front(run, merge_options, import_file, **how)
    found = show_answer(front, verbose=output_options().verbose)
    answer_front(run, front, found, run)
    show_steps(after_search(run, found))


@click.command(cls=MergeCommand)
@with_output_options()
@config_or_options("out")
@click.option(
    "--run-folder",
    "run_folder",
    type=FOLDER,
    help="Where the search goes  [default: OUT.run]",
)
@workers_option
@model_options
@merging("reading {config}", "config", "out")
def run(
    merge_options: MergeOptions,
    out: Path,
    run_folder: Path | None,
    model_paths: dict[str, str],
    **how: Any,
) -> None:
    """Search, choose a merge, and write it to OUT.

    CONFIG is a mergekit configuration with a map: block. Without it, options say what
    it would; it is written to OUT.yml:
    mergekit-map run --base A --model B --model C --text fr.txt --task gsm8k OUT

    Example: mergekit-map run merge.yml my-model
    """
    from mergekit_map.workflows.select import select_point

    run_folder = run_folder or out.with_name(f"{out.name}.run")
    find_front(run_folder, merge_options, model_paths=model_paths, **how)
    # The search has just written this folder, so its code is the user's own.
    where = {"model_paths": model_paths, "trust_run": True}
    merge_and_show(run_folder, out, select_point(run_folder), merge_options, **where)


@click.command(cls=MergeCommand)
@with_output_options()
@click.option(
    "--out",
    type=FOLDER,
    help="Where results go; a demo that was stopped there goes on  [default: "
    "mergekit-map-demo, numbered if that is done]",
)
@workers_option
@merging("preparing the demo")
def demo(
    merge_options: MergeOptions, out: Path | None, workers: int | str | None
) -> None:
    """Train a small family of models, search, select and merge, all offline.

    A base model and two fine-tunes, for code and for arithmetic, are trained on the
    text of this Python installation, once, which takes some minutes.

    Example: mergekit-map demo
    """
    with starting():
        import torch

        from mergekit_map.cli.progress import TerminalReporter
        from mergekit_map.demo.configuration import demo_config
        from mergekit_map.demo.family import family_folder, train_family
        from mergekit_map.workflows.select import select_point

    if merge_options.num_threads is None:
        # The models are too small to gain from more, and threads that wait for one
        # another on a busy machine take many times longer.
        torch.set_num_threads(1)
    folder = out or next(f for f in _numbered() if not (f / "merged").exists())
    refuse_existing(folder / "merged")
    with TerminalReporter() as reporter:
        family = train_family(family_folder(), reporter.stage)
    config, run_folder = folder / "demo.yml", folder / "run"
    write_atomically(config, demo_config(family))
    find_front(run_folder, merge_options, config=config, workers=workers)
    selection = select_point(run_folder)
    merge_and_show(
        run_folder, folder / "merged", selection, merge_options, trust_run=True
    )


def find_front(
    run: Path,
    options: MergeOptions,
    import_file: Path | None = None,
    *,
    workers: int | str | None = None,
    **how: Any,
) -> Front:
    """Search as a configuration says, going on where it was stopped."""
    if isinstance(workers, int):
        from mergekit_map.workers.pool import start_forkserver

        start_forkserver()  # which imports while this process does, too
    with starting():
        from mergekit_map.cli.progress import TerminalReporter
        from mergekit_map.evaluation.project import load_project
        from mergekit_map.search.import_csv import read_imported
        from mergekit_map.utils.progress import notifying, stage
        from mergekit_map.workflows.search import search_front

    reporter = TerminalReporter()
    try:
        checking = stage(f"checking models and tasks of {how['config']}")
        with reporter, notifying(reporter), checking:
            project = load_project(options=options, **how)
            study = project.study()
            warnings = [f"warning: {text}" for text in project.small_samples()]
        for note in (*project.notes, *warnings):
            reporter.notice(note)
        imported = read_imported(import_file, study) if import_file else []
        with deferred(), reporter:
            return search_front(project, run, reporter, imported, workers=workers).front
    except KeyboardInterrupt as stop:
        stop.args = (_stopped(run, reporter, stopped_by(stop)),)
        raise


def _stopped(run: Path, reporter: TerminalReporter, stopped: str) -> str:
    """Return how far a stopped search is, and how to go on."""
    from mergekit_map.results.run_folder import RunFolder

    done = f"{stopped} before anything was measured. "
    if reporter.done and RunFolder(run).plan.exists():
        done = (
            f"{stopped} at {reporter.done} of at most {reporter.total} measurements, "
            f"which are kept; look at them with: mergekit-map report "
            f"{shlex.quote(str(run))}\n"
        )
    return f"{done}Go on with:\n  {typed_command()}"


def _numbered() -> Iterator[Path]:
    yield Path("mergekit-map-demo")
    yield from (Path(f"mergekit-map-demo-{n}") for n in itertools.count(2))
