"""The answer of a front in a notebook: headline, gains, findings.

A small table with inline style that leaves colours to the page, for dark and light
themes. All text of the user is escaped, and there is no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front

_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.4em 0"
_CELL = "padding:.15em .7em;text-align:left;vertical-align:top;white-space:nowrap"
_SMALL = "font-size:85%;opacity:.75;font-weight:normal"


def front_html(front: Front, heading: str) -> str:
    """Return the answer of a front."""
    found = answer(front)
    rows = [
        [f"<b>{escape(cell)}</b>" if row[0] else escape(cell) for cell in row]
        for row in found.table
    ]
    parts = [
        _small(heading),
        f"<b>{escape(found.headline)}</b>",
        _table(found.headings, rows),
        _small(found.sample),
        *map(escape, found.findings),
    ]
    shown = "".join(f"<div>{part}</div>" for part in parts)
    details = "\n".join(found.details)
    return shown + (folded("details", details) if details else "")


def folded(title: str, text: str) -> str:
    """Return a text that opens on a click."""
    return (
        f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre>"
        "</details>"
    )


def _small(text: str) -> str:
    return f'<span style="{_SMALL}">{escape(text)}</span>'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of headings as text, and cells that are markup already."""
    body = "".join(_row("td", row) for row in rows)
    table = f'<table style="{_TABLE}">{_row("th", map(escape, headings))}{body}</table>'
    return f'<div style="overflow-x:auto">{table}</div>'


def _row(tag: str, cells: Iterable[str]) -> str:
    row = "".join(f'<{tag} style="{_CELL}">{cell}</{tag}>' for cell in cells)
    return f"<tr>{row}</tr>"
