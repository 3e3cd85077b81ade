"""Tables where a terminal is narrow: every number is there, whole, and in its row."""

from __future__ import annotations

import itertools
import re

import pytest
from rich.console import Console
from wide_fronts import MODELS, wide_front

from mergekit_map.cli.tables import Column, Row, show_front, wide_tables
from mergekit_map.utils.text import folded

WIDTHS = [60, 120]


def lines_of(columns: list[Column], rows: list[Row], width: int) -> list[list[str]]:
    """Print tables, and read the lines of each."""
    printed = []
    for table in wide_tables([columns[:2], columns[2:]], rows, "merge", width):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(table)
        printed.append(captured.get().splitlines())
    return printed


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_of_a_front_vanishes(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    front = wide_front()

    show_front(front)

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    for index, point in enumerate(front.points):
        rows = [line.split() for line in lines if re.match(rf" {index} ", line)]
        shown = list(itertools.chain(*rows))
        assert {f"{v:.3f}" for v in point.coefficients.values()} <= set(shown), index
        readings = point.readings("predicted").values()
        assert {f"{reading.value:.4g}" for reading in readings} <= set(shown), index


@pytest.mark.parametrize("width", [20, 60])
def test_columns_that_do_not_fit_go_into_further_tables(width: int) -> None:
    columns = [Column(f"column-{i}", "(note)") for i in range(7)]
    rows = [Row(name, [f"{name}{i}.{'0' * 5}" for i in range(7)]) for name in "ab"]

    tables = lines_of(columns, rows, width)

    for name in "ab":
        found = [
            word
            for lines in tables
            for line in lines
            if line.startswith(f" {name} ")
            for word in line.split()[1:]
        ]
        assert found == list(rows["ab".index(name)].cells)
    assert all(len(line) <= width for lines in tables for line in lines)


@pytest.mark.parametrize("width", [1, 6, 40])
@pytest.mark.parametrize("name", [MODELS[0], "--", "ab-" * 9])
def test_a_folded_name_loses_no_letter(name: str, width: int) -> None:
    lines = folded(name, width)

    assert "".join(lines) == name
    assert max(map(len, lines)) <= width
