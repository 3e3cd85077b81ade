"""A few turns with a merge, line by line in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mergekit_map.errors import EvaluationError
from mergekit_map.shutdown import deferred
from mergekit_map.words import printable

if TYPE_CHECKING:
    from mergekit_map.steps.talking import Speaker


def talk(speaker: Speaker, name: str) -> None:
    """Let the user and a merge speak in turn, until a line is empty or input ends."""
    from mergekit_map.steps.talking import Turn

    how = "" if speaker.chats else "; without a chat template it goes on with your text"
    click.echo(f"{name}{how}")
    click.echo("An empty line: back. /new: begin anew. Ctrl-C stops an answer.")
    turns: list[Turn] = []
    while line := _line():
        if line == "/new":
            turns.clear()
            continue
        said = [*turns, Turn("user", line)]
        try:
            with deferred():
                answer = speaker.answer(said, _emit)
        except KeyboardInterrupt:
            click.echo(" ... stopped; this turn is forgotten")
            continue
        except EvaluationError as error:
            click.echo(f"error: {printable(str(error))}", err=True)
            continue
        click.echo()
        turns = [*said, Turn("assistant", answer)]


def _line() -> str:
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        click.echo()
        return ""


def _emit(words: str) -> None:
    click.echo(printable(words), nl=False)
