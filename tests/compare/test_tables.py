"""The paper's tables, of numbers made by hand, and how any table is written."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mergekit_map.compare.indicators import (
    ComparedRun,
    Comparison,
    FrontScores,
    Reference,
    RSquared,
    Spread,
    Sums,
)
from mergekit_map.compare.tables import (
    Column,
    Table,
    csv_text,
    fronts_table,
    markdown,
    methods_table,
    win_rate_table,
)


def scores(merges: int, win_rate: Spread | None = None) -> FrontScores:
    return FrontScores(
        *(merges, 100 * merges, 16),
        *(0.98, 0.023, 0.035, 0.014, 0.028),
        win_rate=win_rate,
        win_rate_paid=win_rate and replace(win_rate, mean=win_rate.mean - 0.01),
        charged=merges + (0 if win_rate else 100),
    )


@pytest.fixture
def comparison() -> Comparison:
    """Two runs: of two models, and of four that were searched by pairs."""
    two = ComparedRun(
        name="two",
        models=2,
        coefficients=["a", "b"],
        tasks=["x", "y"],
        reference=Reference(points=0, ideal=[], nadir=[]),
        fronts={"MAP": scores(30), "random": scores(200, Spread(0.4981, 0.003))},
        r2=RSquared({"x": 0.971, "y": 0.935}, 0.953, 0.018),
        preference_vectors=[],
        methods={
            "Single task models": Sums([], 0.7584, 0.0176),
            "random": Sums([], 0.7, 0.01),
            "MAP": Sums([], 0.707, 0.0176),
        },
    )
    methods = {
        "random": Sums([], 0.73, 0.01),
        "nsga2": Sums([], math.nan, 0.01),
        "MAP": Sums([], 0.7284, 0.01),
    }
    four = replace(
        two,
        name="four",
        models=4,
        coefficients=[*"abcd"],
        r2=RSquared({}, math.nan, math.nan),
        methods=methods,
    )
    return Comparison(
        budget=200, preferences=20, seed=0, unit="percent", runs=[two, four]
    )


def lines(table: Table) -> list[str]:
    return [line for line in markdown(table).splitlines() if line.startswith("|")]


def test_a_run_has_a_row_of_win_rates_and_one_for_each_front(
    comparison: Comparison,
) -> None:
    won, paid = "49.8 ± 0.3 %", "48.8 ± 0.3 %"
    assert lines(win_rate_table(comparison))[2:] == [
        f"| two | 2 | 2 | 200 | 14.14 | 30 | {won} | 0.953 ± 0.018 | {paid} | 130 |",
        f"| four | 4 | 2 | 200 | 3.76 | 30 | {won} | - | {paid} | 130 |",
    ]
    _, _, ours, direct, *_ = lines(fronts_table(comparison))
    same = "16 | 0.980 | 0.023 | 0.035 | 0.014 | 0.028"
    assert ours == f"| two | MAP | 30 | 3000 | {same} | - | - | 130 |"
    assert direct == f"| two | random | 200 | 20000 | {same} | {won} | {paid} | 200 |"


def test_a_method_has_a_row_and_ours_is_last(comparison: Comparison) -> None:
    assert lines(methods_table(comparison)) == [
        "| method | 2 models | 4 models |",
        "| --- | ---: | ---: |",
        "| Single task models | 75.84 ± 1.76 % | - |",
        "| Direct search | 70.00 ± 1.00 % | **73.00 ± 1.00 %** |",
        "| NSGA-II | - | - |",
        "| MAP | **70.70 ± 1.76 %** | 72.84 ± 1.00 % |",
    ]
    scaled = methods_table(replace(comparison, unit="scaled"))
    assert lines(scaled)[-1] == "| MAP | **0.707 ± 0.018** | 0.728 ± 0.010 |"


def test_a_table_is_written_for_reading_and_for_computing() -> None:
    columns = [
        Column("method"),
        Column("merges"),
        Column("GD", digits=2),
        Column("HV", percent=True, digits=1, bold_best=True),
    ]
    rows = [
        ["ideal", 2, 0.001, Spread(0.9, 0.01)],
        ["a|b", None, 0.25, Spread(0.671, 0.0204)],
        ["c", 30, math.nan, 0.71],
    ]
    table = Table("methods", "Sums", "What it says.", columns, rows, beyond=[0])

    assert lines(table)[2:] == [
        "| ideal | 2 | 0.00 | 90.0 ± 1.0 % |",
        "| a\\|b | - | 0.25 | 67.1 ± 2.0 % |",
        "| c | 30 | - | **71.0 %** |",
    ]
    assert csv_text(table).splitlines() == [
        "method,merges,GD,HV,HV std",
        "ideal,2,0.001,0.9,0.01",
        "a|b,,0.25,0.671,0.0204",
        "c,30,,0.71,",
    ]
