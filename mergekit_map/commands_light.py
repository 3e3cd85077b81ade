"""Commands that load no model and import nothing heavy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from mergekit_map.selection import Selection, select_point

_FOLDER = click.Path(path_type=Path)


def _read_preference(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> dict[str, float] | None:
    """Read ``math=2,code=1``."""
    if text is None:
        return None
    weights: dict[str, float] = {}
    for part in text.split(","):
        task, _, weight = part.partition("=")
        try:
            weights[task.strip()] = float(weight)
        except ValueError:
            message = f"write it as math=2,code=1; got {text!r}"
            raise click.BadParameter(message, ctx, param) from None
        if not 0 <= weights[task.strip()] < float("inf"):
            raise click.BadParameter(f"weights are 0 or more, got {part!r}", ctx, param)
    if not any(weights.values()):
        raise click.BadParameter("at least one weight must be above 0", ctx, param)
    return weights


def selection_options(command: Any) -> Any:
    """Add ``--prefer`` and ``--index`` to a command."""
    index = click.option(
        "--index",
        type=click.IntRange(min=0),
        help="A point of the front by its number in front.csv.",
    )
    prefer = click.option(
        "--prefer",
        metavar="TASK=WEIGHT,...",
        callback=_read_preference,
        help="How much each task counts, for example math=2,code=1.",
    )
    return prefer(index(command))


def chosen(run: Path, prefer: dict[str, float] | None, index: int | None) -> Selection:
    """Select as the options of ``selection_options`` say."""
    if prefer is not None and index is not None:
        raise click.UsageError("give --prefer or --index, not both")
    return select_point(run, prefer=prefer, index=index)


@click.command()
@click.argument("run", type=_FOLDER)
@selection_options
def select(run: Path, prefer: dict[str, float] | None, index: int | None) -> None:
    """Choose a point of the front of RUN and write RUN/recipe.yml.

    Nothing is evaluated, so choose as often as you like. Without an option, what was
    chosen last is shown again.

    Example: mergekit-map select my-search --prefer math=2,code=1
    """
    selection = chosen(run, prefer, index)
    click.echo(selection.recipe, nl=False)
    click.echo(f"\nwritten to {run / 'recipe.yml'}; merge it with:", err=True)
    command = shlex.join(["mergekit-map", "merge", str(run), "OUT"])
    click.echo(f"  {command}", err=True)
