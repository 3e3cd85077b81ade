"""``mergekit-map select`` and ``merge``: choose a point of a front, and write it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mergekit_map.cli.mergekit_options import MakeOptions, MergeCommand, MergeOptions
from mergekit_map.cli.options import (
    FOLDER,
    RUN,
    answer,
    look_at_run,
    model_options,
    output_options,
    quiet_option,
    selection_options,
    starting,
    verbose_option,
    with_output_options,
)
from mergekit_map.utils.files import refuse_existing


@click.command()
@with_output_options
@quiet_option
@click.argument("run", type=RUN)
@selection_options
@verbose_option
def select(run: Path, **choice: Any) -> None:
    """Choose a point of the front of RUN and write RUN/recipe.yml.

    Nothing is measured, so choose as often as you like. Without an option, the last
    choice is shown again. If the search is not finished, you choose from what it has
    found so far.

    Example: mergekit-map select my-search --prefer math=2,code=1
    """
    look_at_run(run)
    with starting(f"reading {run}"):
        from mergekit_map.cli.screen import show_front, show_steps
        from mergekit_map.workflows.select import select_point

    selection = select_point(run, **choice)
    recipe = run / "recipe.yml"
    found = show_front(run, selection.front, recipe)
    answer(recipe=selection.recipe, recipe_file=str(recipe))
    if output_options().verbose:
        click.echo(f"\n{selection.recipe}", nl=False)
    click.echo(f"\n{selection.front.reason}\nThe recipe is in {recipe}.")
    show_steps(run, found)


@click.command(cls=MergeCommand)
@with_output_options
@click.argument("run", type=RUN)
@click.argument("out", type=FOLDER)
@selection_options
@model_options
def merge(
    make_options: MakeOptions,
    run: Path,
    out: Path,
    model_paths: dict[str, str],
    *,
    trust_run: bool,
    **choice: Any,
) -> None:
    """Write a point of the front as a checkpoint, and measure it.

    Without a choice, the last one is merged.

    Example: mergekit-map merge my-search my-model --prefer math=2,code=1
    """
    refuse_existing(out)
    look_at_run(run)
    where = {"model_paths": model_paths, "trust_run": trust_run}
    merge_and_show(run, out, make_options(f"opening {run}"), choice, **where)


def merge_and_show(
    run: Path, out: Path, options: MergeOptions, choice: Mapping[str, Any], **where: Any
) -> None:
    """Choose a point, write its checkpoint, and print the answer and the next steps."""
    from mergekit_map.cli.progress import TerminalReporter
    from mergekit_map.cli.screen import show_front, show_steps
    from mergekit_map.workflows.merge import merge_point
    from mergekit_map.workflows.select import select_point

    selection = select_point(run, **choice)
    with TerminalReporter() as reporter:
        merged = merge_point(run, out, selection, options, [reporter], **where)
    found = show_front(run, merged.front, out)
    answer(model=str(out), command=merged.command)
    click.echo(
        f"\nThe merge {merged.point.weights} (point {selection.index} of the front) "
        f"is in the folder {out}.\nmergekit alone writes the same tensors with:"
    )
    click.echo(f"  {merged.command}")
    show_steps(run, found, out, trusted=where.get("trust_run", False))
