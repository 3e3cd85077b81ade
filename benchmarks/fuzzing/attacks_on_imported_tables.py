"""Tables of ``search --import``: damaged, of other programs, and with wrong numbers.

What is refused names the file, and the line where there is one; what is taken stands in
the log as it stands in the table.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from attack import Attack, first, refused
from damages import BYTES, PLACES, Change, instead, put
from small_search import project, run_in

HEADER = (
    *("greeting-model", "code-model", "greeting value", "greeting stderr"),
    *("greeting n", "code value", "code stderr", "code n"),
)
ROW = ("0.25", "0.5", "1.25", "0.0625", "11", "2.5", "0.125", "12")
OTHER = ("0.75", "0.375", "0.5", "0.25", "11", "0.75", "0.5", "12")
TABLE = (HEADER, ROW, OTHER)
COMMAND = "search config.yml new --import table.csv"


def attacks(_: int) -> Iterator[Attack]:
    """List them all; they are the same for every seed."""
    for way, damage in {**BYTES, **PLACES, **FILES}.items():
        if way not in NO_ATTACK:
            yield _attack(f"a table: {way}", damage, "table.csv")
    for way, content in RIGHT.items():
        attempt = functools.partial(_right, content)
        yield Attack(f"a table that is right: {way}", attempt)
    for column, header in enumerate(HEADER):
        for cell in (*NO_NUMBERS, *NO_CELLS[min(column, 2 + (column - 2) % 3)]):
            words = "table.csv:2", header.removesuffix(" n")
            yield _attack(f"{header} is {cell!r:.40}", _with(1, column, cell), *words)
        for text in HEADERS:
            if text != header:
                name = f"the column {header} is called {text!r:.40}"
                yield _attack(name, _with(0, column, text), "table.csv:1")


def _project(folder: Path) -> Path:
    """Give a search that no documents are kept apart from, so that it may import."""
    config = project(folder) / "config.yml"
    config.write_text(config.read_text().replace("holdout: 0.3, ", ""))
    return folder


def _table(rows: Sequence[Sequence[str]] = TABLE) -> str:
    return "".join(",".join(row) + "\n" for row in rows)


def _text(text: str) -> Change:
    return put(text.encode())


def _with(line: int, column: int, cell: str) -> Change:
    """Write the table with another cell."""
    rows = [list(row) for row in TABLE]
    rows[line][column] = cell
    return _text(_table(rows))


def _attack(name: str, damage: Change, *words: str) -> Attack:
    """Attack by a table that is to be refused, by words."""

    def attempt(folder: Path) -> str:
        table = _project(folder) / "table.csv"
        table.write_text(_table())
        damage(table)
        outcome = run_in(folder, COMMAND)
        left = [path.name for path in (folder / "new").rglob("*") if path.is_file()]
        left = [name for name in left if "lock" not in name]
        return first(
            refused(outcome, *words), f"left in the run folder: {left}" if left else ""
        )

    return Attack(name, attempt)


def _right(content: bytes, folder: Path) -> str:
    (_project(folder) / "table.csv").write_bytes(content)
    outcome = run_in(folder, COMMAND)
    if outcome.code != 0:
        return f"exit {outcome.code}: {outcome.said[-600:]}"
    return _missing(folder / "new" / "evaluations.jsonl")


def _missing(log: Path) -> str:
    """Say what of the table is not in the log, number for number."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = {
        (*line["coefficients"].values(), line["task"]): line
        for line in lines
        if line["role"] == "imported"
    }
    for row in (ROW, OTHER):
        x, y, *numbers = map(float, row)
        for task, (value, stderr, n) in zip(
            ("greeting", "code"), (numbers[:3], numbers[3:]), strict=True
        ):
            line = found.pop((x, y, task), None)
            if line is None:
                return f"{task} at {x}, {y} is not in the log"
            if (line["value"], line["stderr"], line["n"]) != (value, stderr, n):
                return f"{line} is not {row}"
    return f"nobody imported {found}" if found else ""


# What a table may be; without its end it lacks a count alone.
NO_ATTACK = {"with a byte order mark", "twice", "without its end", "a line of 20 MB"}
FILES: dict[str, Change] = {
    "a cell of 20 MB": _text(_table() + "a" * 20_000_000),
    "one of only a header": _text(_table([HEADER])),
    "one without a header": _text(_table([ROW, OTHER])),
    "semicolons between cells": _text(_table().replace(",", ";")),
    "commas in numbers": _text(_table().replace(",", ";").replace(".", ",")),
    "a quote that is not closed": _text(_table() + '"0.5,1\n'),
    "a short row": _text(_table([*TABLE, ROW[:5]])),
    "a merge with another result": _text(_table([*TABLE, (*ROW[:2], "9", *ROW[3:])])),
    "200,000 wrong rows": _text(_table() + "0.1,0.5,x,1,1,1,1,1\n" * 200_000),
    "50,000 columns": _text(",".join(f"c{n}" for n in range(50_000)) + "\n1\n"),
    "a standard error without a value": _with(1, 2, ""),
    "no task": _text(_table([row[:2] for row in TABLE])),
    "no coefficient": _text(_table([row[1:] for row in TABLE])),
    "a column twice": _text(_table([(*row, row[2]) for row in TABLE])),
    "JSON": _text('{"greeting-model": 0.5}\n'),
    "/dev/stdin, which is empty": instead(lambda path: path.symlink_to("/dev/stdin")),
    "a line break in the header": _text('"a\nb",' + _table()),
}
_PLAIN = _table()
RIGHT = {
    "as it is": _PLAIN.encode(),
    "a byte order mark": b"\xef\xbb\xbf" + _PLAIN.encode(),
    "line ends of Windows": _PLAIN.replace("\n", "\r\n").encode(),
    "no line end at the end": _PLAIN.rstrip("\n").encode(),
    "cells in quotes": re.sub("[^,\n]+", r'"\g<0>"', _PLAIN).encode(),
    "empty lines": _PLAIN.replace("\n", "\n\n").encode(),
    "spaces around cells": _PLAIN.replace(",", " , ").encode(),
    "each row twice": _table([HEADER, ROW, OTHER, ROW, OTHER]).encode(),
    "exponents": _PLAIN.replace("0.0625", "6.25e-2").encode(),
}
NO_NUMBERS = (
    *("NaN", "inf", "-Infinity", "1e999", "x", "0x10", "1.5.5", "1;5", "5%"),
    *("=1+1", "<script>alert(1)</script>", "None", "true", "\x1b[2J", "\u202e1"),
    *("9" * 400, "a" * 3000),
)
_COEFFICIENT = ("", "1e308", "-1e308")
NO_CELLS: dict[int, tuple[str, ...]] = {
    0: _COEFFICIENT,
    1: _COEFFICIENT,
    2: ("-1", "1e308", "-1e308"),  # a loss, from 0
    3: ("-1", "-1e-9", "1e308"),
    4: ("-1", "1.5", "1e308", "1e30"),
}
HEADERS = (
    *("", "x", "\x1b[2J", "Greeting Value", "greeting-model", "point value"),
    *("a" * 3000, "<b>", "../../x", "x" * 41),
)
