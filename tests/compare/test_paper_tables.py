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


def sums(mean: float, std: float = 0.01) -> Sums:
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
            "SLERP": sums(0.6),
            "random": sums(0.7),
            "MAP": sums(0.707, 0.0176),
        },
    )
    four = replace(
        two,
        name="four",
        models=4,
        coefficients=[*"abcd"],
        r2=RSquared({}, math.nan, math.nan),
        methods={"random": sums(0.73), "nsga2": sums(math.nan), "MAP": sums(0.7284)},
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
        "| SLERP | 60.00 ± 1.00 % | - |",
        "| Direct search | 70.00 ± 1.00 % | **73.00 ± 1.00 %** |",
        "| NSGA-II | - | - |",
        "| MAP | **70.70 ± 1.76 %** | 72.84 ± 1.00 % |",
    ]
    scaled = methods_table(replace(comparison, unit="scaled"))
    assert lines(scaled)[-1] == "| MAP | **0.707 ± 0.018** | 0.728 ± 0.010 |"


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
    first, *_ = csv.DictReader(io.StringIO(csv_text(table)))

    of_two = {"2 models": "0.7584", "2 models std": "0.0176"}
    of_four = {"4 models": "", "4 models std": ""}
    assert first == {"method": "Single task models", **of_two, **of_four}
