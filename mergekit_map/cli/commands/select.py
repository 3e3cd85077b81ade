"""``mergekit-map select``: chooses from a front; imports nothing heavy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from mergekit_map.cli.options import (
    FOLDER,
    check_paths,
    readable_folder,
    selection_options,
    starting,
)
from mergekit_map.cli.output import answer, answer_front, with_output_options


@click.command()
@with_output_options(quiet=True)
@click.argument("run", type=FOLDER)
@selection_options
@click.option(
    "--verdicts",
    is_flag=True,
    help="Say all that is known of the search, not only what depends on the choice.",
)
def select(run: Path, choice: dict[str, Any], *, verdicts: bool) -> None:
    """Choose a point of the front of RUN and write RUN/recipe.yml.

    Nothing is evaluated, so choose as often as you like. Without an option, what was
    chosen last is shown again. Of a search that is not finished, what is found so far
    is chosen from.

    Example: mergekit-map select my-search --prefer math=2,code=1
    """
    check_paths(run=run)
    with starting(f"reading {run}"):
        from rich.console import Console
        from rich.text import Text

        from mergekit_map.cli.gain_table import show_gains
        from mergekit_map.results.narrative import choice_in_words
        from mergekit_map.workflows.select import select_point

    found = readable_folder(run)
    selection = select_point(found, **choice)
    front = selection.front
    answer_front(found, front, found / "recipe.yml")
    answer(recipe=selection.recipe, recipe_file=str(found / "recipe.yml"))
    console = Console(stderr=True)
    show_gains(front, console)
    console.print()
    click.echo(selection.recipe, nl=False)
    click.echo("", err=True)
    for sentence in front.verdicts if verdicts else choice_in_words(front):
        # A line each where programs read.
        console.print(Text(sentence), soft_wrap=not console.is_terminal)
    if not verdicts:
        command = shlex.join(["mergekit-map", "select", str(run), "--verdicts"])
        click.echo(f"What is known of the whole search: {command}", err=True)
    click.echo(f"\nwritten to {found / 'recipe.yml'}; merge it with:", err=True)
    command = shlex.join(["mergekit-map", "merge", str(run), "OUT"])
    click.echo(f"  {command}", err=True)
