"""The command that chooses from a front: loads no model, imports nothing heavy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from mergekit_map.commands.options import (
    FOLDER,
    look_first,
    looked_at,
    selection_options,
    starting,
)
from mergekit_map.commands.showing import answer, answer_front, showing


@click.command()
@showing(quiet=True)
@click.argument("run", type=FOLDER)
@selection_options
def select(run: Path, choice: dict[str, Any]) -> None:
    """Choose a point of the front of RUN and write RUN/recipe.yml.

    Nothing is evaluated, so choose as often as you like. Without an option, what was
    chosen last is shown again. Of a search that is not finished, what is found so far
    is chosen from.

    Example: mergekit-map select my-search --prefer math=2,code=1
    """
    look_first(run=run)
    with starting():
        from mergekit_map.results.promise_words import confirmed_in_words
        from mergekit_map.steps.select import select_point

    found = looked_at(run)
    selection = select_point(found, **choice)
    answer_front(found, selection.front, found / "recipe.yml")
    answer(recipe=selection.recipe, recipe_file=str(found / "recipe.yml"))
    for sentence in confirmed_in_words(selection.front):
        click.echo(sentence, err=True)
    click.echo(selection.recipe, nl=False)
    click.echo("", err=True)
    for sentence in selection.front.verdicts:
        click.echo(sentence, err=True)
    click.echo(f"\nwritten to {found / 'recipe.yml'}; merge it with:", err=True)
    command = shlex.join(["mergekit-map", "merge", str(run), "OUT"])
    click.echo(f"  {command}", err=True)
