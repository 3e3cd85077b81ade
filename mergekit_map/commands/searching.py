"""Commands that search and merge.

What else is heavy is imported inside the commands, so that their help is no slower
than mergekit's own.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from mergekit.options import MergeOptions, PrettyPrintHelp

from mergekit_map.commands.merging import merging
from mergekit_map.commands.selecting import FOLDER, selection_options
from mergekit_map.files import refuse_existing
from mergekit_map.selection import Selection, select_point
from mergekit_map.terminal import TerminalReporter, show_front, show_point


@click.command(cls=PrettyPrintHelp)
@click.argument("config", type=FOLDER)
@click.argument("run", type=FOLDER)
@click.option(
    "--import",
    "import_file",
    type=FOLDER,
    metavar="FILE.csv",
    help="Evaluations that were measured elsewhere, a row per merge: a column per "
    "coefficient, a column named as each task, and 'TASK stderr' where it is known.",
)
@merging
def search(
    merge_options: MergeOptions, config: Path, run: Path, import_file: Path | None
) -> None:
    """Evaluate merges as CONFIG says, into the folder RUN, and find the front.

    A search that was stopped goes on where it was; one that is finished measures only
    what CONFIG asks for anew (more evaluations, another task).

    Example: mergekit-map search merge.yml my-search
    """
    _search(config, run, merge_options, import_file)
    click.echo(
        f"\nThe front is in {run}: front.csv, front.png and a recipe per point.\n"
        f"Look at it with: mergekit-map report {shlex.quote(str(run))}\n"
        f"Choose with: mergekit-map select {shlex.quote(str(run))} --prefer TASK=WEIGHT"
    )


@click.command(cls=PrettyPrintHelp)
@click.argument("run", type=FOLDER)
@click.argument("out", type=FOLDER)
@selection_options
@merging
def merge(
    merge_options: MergeOptions, run: Path, out: Path, choice: dict[str, Any]
) -> None:
    """Write the checkpoint of a point of the front of RUN to OUT.

    Without a choice, the recipe chosen last is merged.

    Example: mergekit-map merge my-search my-model --prefer math=2,code=1
    """
    refuse_existing(out)
    _merge(run, out, select_point(run, **choice), merge_options)


@click.command(cls=PrettyPrintHelp)
@click.argument("config", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option(
    "--run-folder",
    "run_folder",
    type=FOLDER,
    help="Where the search goes  [default: OUT.run]",
)
@merging
def run(
    merge_options: MergeOptions, config: Path, out: Path, run_folder: Path | None
) -> None:
    """Search, select as CONFIG says, and merge into OUT: as mergekit-yaml, searched.

    Example: mergekit-map run merge.yml my-model
    """
    refuse_existing(out)
    run_folder = run_folder or out.with_name(f"{out.name}.run")
    again = ["run", str(config), str(out), "--run-folder", str(run_folder)]
    _search(config, run_folder, merge_options, again=again)
    _merge(run_folder, out, select_point(run_folder), merge_options)


@click.command(cls=PrettyPrintHelp)
@click.option(
    "--out",
    type=FOLDER,
    help="Where results go  [default: mergekit-map-demo, numbered if it exists]",
)
@merging
def demo(merge_options: MergeOptions, out: Path | None) -> None:
    """Train a small family of models, search, select and merge, all offline.

    A base model and two fine-tunes, for code and for arithmetic, are trained on the
    text of this Python installation, once; about three minutes on two cores.

    Example: mergekit-map demo
    """
    from mergekit_map.demo.configuration import demo_config
    from mergekit_map.demo.family import family_folder, train_family

    if merge_options.num_threads is None:
        # The models are too small to gain from more, and threads that wait for one
        # another on a busy machine take many times longer.
        torch.set_num_threads(1)
    folder = out or _unused(Path("mergekit-map-demo"))
    refuse_existing(folder)
    with TerminalReporter() as reporter:
        family = train_family(family_folder(), reporter.stage)
    folder.mkdir(parents=True)
    config = folder / "demo.yml"
    config.write_text(demo_config(family), encoding="utf-8")
    run_folder = folder / "run"
    _search(config, run_folder, merge_options)
    selection = select_point(run_folder)
    click.echo(
        f"\nThe chosen recipe, {run_folder / 'recipe.yml'}:\n\n{selection.recipe}"
    )
    _merge(run_folder, folder / "merged", selection, merge_options)


def _search(
    config: Path,
    run: Path,
    options: MergeOptions,
    import_file: Path | None = None,
    again: Sequence[str] = (),
) -> None:
    from mergekit_map.importing import read_imported
    from mergekit_map.pipeline import search_front
    from mergekit_map.project import load_project

    project = load_project(config, options)
    imported = read_imported(import_file, project.study()) if import_file else []
    try:
        with TerminalReporter() as reporter:
            front = search_front(project, run, reporter, imported)
    except KeyboardInterrupt:
        again = again or ["search", str(config), str(run)]
        words = shlex.join(["mergekit-map", *again])
        click.echo(
            f"\nstopped; all finished measurements are kept. Go on with: {words}"
        )
        raise SystemExit(130) from None
    show_front(front)


def _merge(run: Path, out: Path, selection: Selection, options: MergeOptions) -> None:
    from mergekit_map.shipping import merge_point

    with TerminalReporter() as reporter:
        point, command = merge_point(run, out, selection, options, reporter)
    click.echo(f"{out} holds point {selection.index} of the front:")
    show_point(selection.front, point)
    click.echo(f"The same checkpoint with mergekit alone:\n  {command}")


def _unused(folder: Path) -> Path:
    if not folder.exists():
        return folder
    numbered = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(2))
    return next(path for path in numbered if not path.exists())
