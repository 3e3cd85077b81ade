"""Finished searches as values: short to print, as exact as their files, drawn."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from runs import files_of

import mergekit_map


def test_a_run_is_read_by_text_by_path_and_by_itself(run: Path) -> None:
    first = mergekit_map.read_run(str(run))

    assert mergekit_map.read_run(run).front == first.front
    assert mergekit_map.read_run(first).front == first.front
    assert mergekit_map.write_report(run) == run / "report.html"
    assert mergekit_map.select_point(run, index=2).index == 2
    assert mergekit_map.read_run(first).front.selected == 2


def test_reading_a_run_changes_nothing_in_it(run: Path) -> None:
    before = files_of(run)
    shown = mergekit_map.read_run(run)
    shown.plot()
    shown.to_pandas()
    assert shown._repr_html_()

    assert files_of(run) == before


def test_recipes_that_git_gave_other_line_ends_are_read(run: Path) -> None:
    for path in (run / "recipes").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    assert mergekit_map.select_point(run, index=2).index == 2


def test_pandas_gets_the_numbers_of_the_csv_exactly(run: Path) -> None:
    frame = mergekit_map.read_run(run).to_pandas()
    with (run / "front.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert frame.index.tolist() == [int(row["point"]) for row in rows]
    assert frame["selected"].dtype == frame["recommended"].dtype == bool
    assert frame["selected"].tolist() == [row["selected"] == "1" for row in rows]
    columns = [n for n in frame if n not in {"selected", "recommended"}]
    assert len(columns) > 10
    for name in columns:
        for value, row in zip(frame[name], rows, strict=True):
            assert value == float(row[name]) if row.get(name) else math.isnan(value)
