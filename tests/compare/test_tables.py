"""The paper's tables, of numbers made by hand, and how any table is written."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from mergekit_map.compare.indicators import ComparedRun, Comparison, FrontScores, Spread
from mergekit_map.compare.tables import (
    Column,
    Table,
    csv_text,
    fronts_table,
    markdown,
    methods_table,
    win_rate_table,
)


def scores(merges: int, *win_rates: float) -> FrontScores:
    return FrontScores(merges, 16, 0.98, 0.023, 0.035, *win_rates)


@pytest.fixture
def comparison() -> Comparison:
    """Two runs: of two models, and of four that were searched by pairs."""
    fronts = {"MAP": scores(30), "random": scores(200, 0.4981, 0.4881)}
    methods = {"Single task models": [0.7408, 0.776], "random": [0.69, 0.71]}
    methods["MAP"] = [0.6894, 0.7246]
    known: Any = {"models": 2, "tasks": ["x", "y"], "r2": {"x": 0.971, "y": 0.935}}
    known |= {"ideal": [], "nadir": [], "preference_vectors": []}
    two = ComparedRun(name="two", fronts=fronts, methods=methods, **known)
    methods = {"random": [0.72, 0.74], "nsga2": [math.nan], "MAP": [0.7184, 0.7384]}
    four = replace(two, name="four", models=4, r2={}, methods=methods)
    return Comparison(preferences=20, seed=0, unit="percent", runs=[two, four])


def lines(table: Table) -> list[str]:
    return [line for line in markdown(table).splitlines() if line.startswith("|")]


def test_a_run_has_a_row_of_win_rates_and_one_per_front(comparison: Comparison) -> None:
    assert lines(win_rate_table(comparison))[2:] == [
        "| two | 2 | 2 | 200 | 30 | 49.8 % | 48.8 % | 0.953 ± 0.018 |",
        "| four | 4 | 2 | 200 | 30 | 49.8 % | 48.8 % | - |",
    ]
    _, _, ours, direct, *_ = lines(fronts_table(comparison))
    same = "16 | 0.980 | 0.023 | 0.035"
    assert ours == f"| two | MAP | 30 | {same} | - | - |"
    assert direct == f"| two | random | 200 | {same} | 49.8 % | 48.8 % |"


def test_a_method_has_a_row_and_ours_is_last(comparison: Comparison) -> None:
    assert lines(methods_table(comparison)) == [
        "| method | two (2 models) | four (4 models) |",
        "| --- | ---: | ---: |",
        "| Single task models | 75.84 ± 1.76 % | - |",
        "| random | 70.00 ± 1.00 % | 73.00 ± 1.00 % |",
        "| nsga2 | - | - |",
        "| MAP | 70.70 ± 1.76 % | 72.84 ± 1.00 % |",
    ]
    scaled = methods_table(replace(comparison, unit="scaled"))
    assert lines(scaled)[-1] == "| MAP | 0.707 ± 0.018 | 0.728 ± 0.010 |"


def test_a_table_is_written_for_reading_and_for_computing() -> None:
    columns = [Column("method"), Column("merges"), Column("GD", digits=2)]
    columns.append(Column("HV", percent=True, digits=1))
    rows = [["a|b", None, 0.25, Spread(0.671, 0.0204)], ["c", 30, math.nan, 0.71]]
    table = Table("methods", "Sums", "What it says.", columns, rows)

    assert lines(table)[2:] == [
        "| a\\|b | - | 0.25 | 67.1 ± 2.0 % |",
        "| c | 30 | - | 71.0 % |",
    ]
    assert csv_text(table).splitlines() == [
        "method,merges,GD,HV,HV std",
        "a|b,,0.25,0.671,0.0204",
        "c,30,,0.71,",
    ]
