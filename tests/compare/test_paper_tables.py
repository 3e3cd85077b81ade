"""The paper's tables, of numbers made by hand, and how any table is written."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from mergekit_map.compare.indicators import (
    ComparedRun,
    Comparison,
    FrontScores,
    Reference,
    RSquared,
    Sums,
)
from mergekit_map.compare.paper_tables import (
    fronts_table,
    methods_table,
    win_rate_table,
)
from mergekit_map.compare.tables import Column, Spread, Table, csv_text, markdown

NO_REFERENCE = Reference(points=0, ideal=[], nadir=[])


def scores(merges: int, win_rate: Spread | None = None) -> FrontScores:
    return FrontScores(
        merges,
        documents=100 * merges,
        points=16,
        hypervolume=0.98,
        gd=0.023,
        igd=0.035,
        gd_direct=0.014,
        igd_direct=0.028,
        win_rate=win_rate,
        win_rate_paid=win_rate and replace(win_rate, mean=win_rate.mean - 0.01),
        charged=merges + (0 if win_rate else 100),
    )


def sums(mean: float, std: float) -> Sums:
    return Sums([], mean, std)


@pytest.fixture
def comparison() -> Comparison:
    """Two runs: of two models, and of four that were searched by pairs."""
    two = ComparedRun(
        name="two",
        models=2,
        coefficients=["a", "b"],
        tasks=["x", "y"],
        reference=NO_REFERENCE,
        fronts={"MAP": scores(30), "random": scores(200, Spread(0.4981, 0.003))},
        r2=RSquared({"x": 0.971, "y": 0.935}, 0.953, 0.018),
        preference_vectors=[],
        methods={
            "Single task models": sums(0.7584, 0.0176),
            "SLERP": sums(0.6, 0.02),
            "random": sums(0.70, 0.01),
            "MAP": sums(0.707, 0.0176),
        },
    )
    four = replace(
        two,
        name="four",
        models=4,
        coefficients=["a", "b", "c", "d"],
        fronts={
            "MAP": scores(60),
            "random": scores(256, Spread(0.5067, 0.0244)),
            "nsga2": scores(256, Spread(0.55, 0.01)),
        },
        r2=RSquared({}, math.nan, math.nan),
        methods={
            "Single task models": sums(0.8243, 0.044),
            "random": sums(0.73, 0.01),
            "nsga2": sums(math.nan, math.nan),
            "MAP": sums(0.7284, 0.044),
        },
    )
    return Comparison(
        budget=200, preferences=20, seed=0, unit="percent", runs=[two, four]
    )


def lines(table: Table) -> list[str]:
    return [line for line in markdown(table).splitlines() if line.startswith("|")]


def test_tables_2_and_3_have_a_row_per_search(comparison: Comparison) -> None:
    assert lines(win_rate_table(comparison)) == [
        "| search | models | tasks | merges, direct search | per axis | merges, MAP "
        "| win rate | R² | win rate, as paid | merges, MAP and its front |",
        f"| --- |{' ---: |' * 9}",
        "| two | 2 | 2 | 200 | 14.14 | 30 | 49.8 ± 0.3 % | 0.953 ± 0.018 "
        "| 48.8 ± 0.3 % | 130 |",
        "| four | 4 | 2 | 256 | 4.00 | 60 | 50.7 ± 2.4 % | - | 49.7 ± 2.4 % | 160 |",
    ]


def test_table_4_has_a_row_per_method_and_ours_last(comparison: Comparison) -> None:
    assert lines(methods_table(comparison)) == [
        "| method | 2 models | 4 models |",
        "| --- | ---: | ---: |",
        "| Single task models | 75.84 ± 1.76 % | 82.43 ± 4.40 % |",
        "| SLERP | 60.00 ± 2.00 % | - |",
        "| Direct search | 70.00 ± 1.00 % | **73.00 ± 1.00 %** |",
        "| NSGA-II | - | - |",
        "| MAP | **70.70 ± 1.76 %** | 72.84 ± 4.40 % |",
    ]


def test_metrics_of_different_units_are_scaled_and_the_table_says_so(
    comparison: Comparison,
) -> None:
    table = methods_table(replace(comparison, unit="scaled"))

    assert lines(table)[-1] == "| MAP | **0.707 ± 0.018** | 0.728 ± 0.044 |"
    assert "1 is the best and 0 the worst value of a task" in table.caption
    assert "scores between 0 and 1" in methods_table(comparison).caption


def test_fronts_have_a_row_per_search_and_method(comparison: Comparison) -> None:
    found = lines(fronts_table(comparison))

    assert len(found) == 2 + 2 + 3
    assert found[2:4] == [
        "| two | MAP | 30 | 3000 | 16 | 0.980 | 0.023 | 0.035 | 0.014 | 0.028 "
        "| - | - | 130 |",
        "| two | random | 200 | 20000 | 16 | 0.980 | 0.023 | 0.035 | 0.014 | 0.028 "
        "| 49.8 ± 0.3 % | 48.8 ± 0.3 % | 200 |",
    ]


def test_markdown_has_bold_best_cells_and_no_bars_of_names() -> None:
    distance = Column("GD", digits=2)
    volume = Column("HV", percent=True, digits=1, bold_best=True)
    columns = [Column("method"), Column("merges"), distance, volume]
    rows = [["ideal", 2, 0.001, 0.9], ["a|b", None, 0.25, 0.671], ["c", 30, 0.5, 0.71]]

    found = lines(Table("methods", "Sums", "What it says.", columns, rows, beyond=[0]))

    assert found[2:] == [
        "| ideal | 2 | 0.00 | 90.0 % |",
        "| a\\|b | - | 0.25 | 67.1 % |",
        "| c | 30 | 0.50 | **71.0 %** |",
    ]


def test_csv_has_numbers_in_full_and_deviations_beside_them(
    comparison: Comparison,
) -> None:
    table = methods_table(comparison)
    first, slerp, *_ = csv.DictReader(io.StringIO(csv_text(table)))

    of_two = {"2 models": "0.7584", "2 models std": "0.0176"}
    of_four = {"4 models": "0.8243", "4 models std": "0.044"}
    assert first == {"method": "Single task models", **of_two, **of_four}
    assert slerp["4 models"] == slerp["4 models std"] == ""
