"""Text, tables and blocks of a model card, so that nothing in them is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mergekit_map.results.front import Front


def section(heading: str, body: str) -> str:
    """Put a heading over a section."""
    return f"## {heading}\n\n{body}\n"


def escaped(text: str) -> str:
    """Write a text so that Markdown shows it as it is, on one line."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore within a word is no markup.
    return re.sub(r"([\\`*\[\]|#~$!])|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", line)


def fenced(text: str, language: str) -> str:
    """Put a text into a block of code. A line of YAML cannot begin with its end."""
    return f"```{language}\n{text}```"


def written_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table: names to the left, numbers to the right."""
    rule = ["---", *("---:" for _ in header[1:])]
    cells = [[escaped(cell) for cell in row] for row in (header, *rows)]
    lines = [cells[0], rule, *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def task_heading(front: Front, task: str) -> str:
    """Name a task, its unit, and which values are better."""
    return f"{task} ({', '.join(front.tasks[task].facts)})"
