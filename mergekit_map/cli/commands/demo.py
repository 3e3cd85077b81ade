"""``mergekit-map demo``: trains, searches, selects and merges small models."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from mergekit_map.cli.mergekit_options import MergeOptions, PrettyPrintHelp, merging
from mergekit_map.cli.options import FOLDER, starting, workers_option
from mergekit_map.cli.output import with_output_options
from mergekit_map.cli.steps import merge_and_show, search_and_show
from mergekit_map.utils.files import refuse_existing, write_atomically

_N_SHOWN = 6  # points of the front, beside those that were measured
_BEGUN = {"demo.yml", "run"}


@click.command(cls=PrettyPrintHelp)
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
    text of this Python installation, once, which takes some minutes. What is
    found then is a merge that is better than the base and the uniform soup in both.

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
    folder = out or _free(Path("mergekit-map-demo"))
    if not _is_begun(folder):
        refuse_existing(folder)
    with TerminalReporter() as reporter:
        family = train_family(family_folder(), reporter.stage)
    config, run_folder = folder / "demo.yml", folder / "run"
    write_atomically(config, demo_config(family))
    search_and_show(
        config,
        run_folder,
        merge_options,
        again=["demo", "--out", str(folder)],
        n_points=_N_SHOWN,
        workers=workers,
    )
    selection = select_point(run_folder)
    click.echo(
        f"\nThe chosen recipe, {run_folder / 'recipe.yml'}:\n\n{selection.recipe}"
    )
    merge_and_show(
        run_folder, folder / "merged", selection, merge_options, trust_run=True
    )


def _free(folder: Path) -> Path:
    """Return the first numbered folder that is free or has a stopped demo."""
    numbered = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(2))
    places = itertools.chain([folder], numbered)
    return next(path for path in places if not path.exists() or _is_begun(path))


def _is_begun(folder: Path) -> bool:
    """Whether a folder has nothing but the files of a demo before its merge."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    return {name for name in names if not name.endswith(".partial")} <= _BEGUN
