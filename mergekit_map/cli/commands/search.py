"""``mergekit-map search``, ``run`` and ``demo``: from a configuration to a front."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mergekit_map.cli.commands.select import merge_and_show
from mergekit_map.cli.config_options import config_or_options
from mergekit_map.cli.mergekit_options import MakeOptions, MergeCommand, MergeOptions
from mergekit_map.cli.options import (
    CONFIG,
    FOLDER,
    model_options,
    slow_imports,
    with_output_options,
    workers_option,
)
from mergekit_map.utils.files import refuse_existing, write_atomically
from mergekit_map.utils.shutdown import deferred

if TYPE_CHECKING:
    from mergekit_map.results.front import Front


@click.command(cls=MergeCommand)
@with_output_options
@config_or_options("run")
@click.option(
    "--import",
    "import_file",
    type=CONFIG,
    metavar="FILE.csv",
    help="Use evaluations that were measured elsewhere: a row for each merge; a column "
    "for each coefficient; columns 'TASK value', and 'TASK stderr' if known.",
)
@workers_option
@model_options
def search(
    make_options: MakeOptions,
    config: Path,
    run: Path,
    import_file: Path | None,
    workers: int | str | None,
    **project_options: Any,
) -> None:
    """Evaluate merges as CONFIG says, into RUN, and find the front.

    A search that was stopped goes on where it was; one that is finished measures only
    what was added to CONFIG (more evaluations, another task).

    Instead of CONFIG, give --base, --model, --text and so on: RUN.yml is then written
    from these options.

    Example: mergekit-map search merge.yml my-search
    """
    options = make_options(f"reading {config}")
    from mergekit_map.cli.screen import opening_options, show_front, show_steps

    front = _find_front(config, run, options, workers, import_file, **project_options)
    answer = show_front(run, front, run)
    # The search has just written the folder, so its code is the user's own.
    places = project_options["model_paths"]
    again = opening_options(run, options, places, trust_run=True)
    show_steps(run, answer, options=again)


@click.command(cls=MergeCommand)
@with_output_options
@config_or_options("out")
@click.option(
    "--run-folder", type=FOLDER, help="Where the search goes  [default: OUT.run]"
)
@workers_option
@model_options
def run(
    make_options: MakeOptions,
    config: Path,
    out: Path,
    run_folder: Path | None,
    workers: int | str | None,
    **project_options: Any,
) -> None:
    """Search, choose a merge, and write it to OUT.

    CONFIG is a mergekit configuration with a map: block. Instead of it, give --base,
    --model, --text and so on: OUT.yml is then written from these options.

    Example: mergekit-map run --base A --model B --model C --text fr.txt OUT

    Example: mergekit-map run merge.yml my-model
    """
    options = make_options(f"reading {config}")
    folder = run_folder or out.parent / f"{out.name}.run"
    if out.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise click.UsageError("--run-folder must not be OUT, nor lie inside it")
    _find_front(config, folder, options, workers, **project_options)
    # The search has just written this folder, so its code is the user's own.
    model_paths = project_options["model_paths"]
    merge_and_show(folder, out, options, {}, model_paths=model_paths, trust_run=True)


@click.command(cls=MergeCommand)
@with_output_options
@click.option(
    "--out",
    type=FOLDER,
    default="mergekit-map-demo",
    show_default=True,
    help="Where results go; a demo that was stopped there goes on.",
)
@workers_option
def demo(make_options: MakeOptions, out: Path, workers: int | str | None) -> None:
    """Train a family of tiny models, search and merge, all offline.

    A base model and two fine-tunes, for code and for arithmetic, are trained on the
    text of this Python installation, once. All of it takes about a minute.

    Example: mergekit-map demo
    """
    options = make_options("preparing the demo")
    import torch

    from mergekit_map.cli.screen import TerminalReporter
    from mergekit_map.demo.family import demo_config, family_folder, train_family
    from mergekit_map.utils.progress import notifying

    if options.num_threads is None:
        # Models so small gain nothing from more, and lose much on a busy machine.
        torch.set_num_threads(1)
    refuse_existing(out / "merged")
    with TerminalReporter() as reporter, notifying(reporter):
        family = train_family(family_folder())
    config = out / "demo.yml"
    write_atomically(config, demo_config(family))
    _find_front(config, out / "run", options, workers)
    merge_and_show(out / "run", out / "merged", options, {})


def _find_front(
    config: Path,
    run: Path,
    options: MergeOptions,
    workers: int | str | None,
    import_file: Path | None = None,
    **project_options: Any,
) -> Front:
    with slow_imports(None):
        from mergekit_map.cli.screen import TerminalReporter
        from mergekit_map.evaluation.project import load_project
        from mergekit_map.search.reuse import read_imported
        from mergekit_map.utils.progress import notifying, stage
        from mergekit_map.workflows.search import search_front

    with TerminalReporter() as reporter:
        with notifying(reporter), stage(f"checking models and tasks of {config}"):
            project = load_project(config, options, **project_options)
            study = project.study()
        imported = read_imported(import_file, study) if import_file else []
        with deferred():
            return search_front(project, run, [reporter], imported, workers).front
