"""The table of ``inspect`` that says what a search wants of memory and disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mergekit_map.commands.terminal import new_table
from mergekit_map.words import bytes_in_words

if TYPE_CHECKING:
    from mergekit_map.steps.inspect import Plan

# Other devices by their names.
_WHERE = {"cpu": "host memory", "mapped": "mapped, free memory"}
_LIE = {"device": "on the device", "memory": "in memory", "mapped": "mapped"}


def show_needs(console: Console, plan: Plan) -> None:
    """Print where task vectors lie, what is wanted where, and what is short."""
    if plan.task_vectors is not None:
        where = f"{_LIE[plan.task_vectors]} ({plan.task_vectors_why})"
        console.print(Text(f"What merges are made of lies {where}."))
    table = new_table("", ["for", "where"], ["needs", "free now"])
    for need in (*plan.memory, *plan.disk):
        free = "-" if need.free is None else bytes_in_words(need.free)
        where = _WHERE.get(need.where, need.where)
        cells = (need.what, where, bytes_in_words(need.n_bytes), free)
        table.add_row(*map(Text, cells))
    console.print(table)
    for need in plan.shortages:
        free = "nothing" if need.free is None else bytes_in_words(need.free)
        text = (
            f"warning: {_WHERE.get(need.where, need.where)} has {free} free, and "
            f"{bytes_in_words(need.n_bytes)} are needed for {need.what}.\n"
        )
        console.print(Text(text, style="yellow"))
