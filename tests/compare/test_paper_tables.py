"""The paper's tables, of numbers made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from mergekit_map.compare.paper_tables import (
    fronts_table,
    methods_table,
    win_rate_table,
)
from mergekit_map.compare.tables import Table, markdown


def spread(mean: float | None, std: float | None) -> dict[str, float | None]:
    return {"mean": mean, "std": std}


def scores(merges: int, **more: Any) -> dict[str, Any]:
    return {
        "evaluations": merges,
        "points": 16,
        "hypervolume": 0.98,
        "gd": 0.023,
        "igd": 0.035,
        "gd_direct": 0.014,
        "igd_direct": 0.028,
        **more,
    }


@pytest.fixture
def content() -> dict[str, Any]:
    """Two runs: of two models, and of four that were searched by pairs."""
    two = {
        "name": "two",
        "models": 2,
        "coefficients": ["a", "b"],
        "tasks": ["x", "y"],
        "fronts": {
            "MAP": scores(30),
            "random": scores(200, win_rate=spread(0.4981, 0.003)),
        },
        "r2": {"tasks": {}, **spread(0.953, 0.018)},
        "methods": {
            "Single task models": spread(0.7584, 0.0176),
            "SLERP": spread(0.6, 0.02),
            "random": spread(0.70, 0.01),
            "MAP": spread(0.707, 0.0176),
        },
    }
    four = {
        **two,
        "name": "four",
        "models": 4,
        "coefficients": ["a", "b", "c", "d"],
        "fronts": {
            "MAP": scores(60),
            "random": scores(256, win_rate=spread(0.5067, 0.0244)),
            "nsga2": scores(256, win_rate=spread(0.55, 0.01)),
        },
        "r2": {"tasks": {}, **spread(None, None)},
        "methods": {
            "Single task models": spread(0.8243, 0.044),
            "random": spread(0.73, 0.01),
            "nsga2": spread(float("nan"), float("nan")),
            "MAP": spread(0.7284, 0.044),
        },
    }
    common = {"preferences": 20, "draws": 100, "repeats": 10, "unit": "percent"}
    return {**common, "runs": [two, four]}


def lines(table: Table) -> list[str]:
    return [line for line in markdown(table).splitlines() if line.startswith("|")]


def test_tables_2_and_3_have_a_row_per_search(content: dict[str, Any]) -> None:
    assert lines(win_rate_table(content)) == [
        "| search | models | tasks | merges, direct search | per axis | merges, MAP "
        "| win rate | R² |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| two | 2 | 2 | 200 | 14.14 | 30 | 49.8 ± 0.3 % | 0.953 ± 0.018 |",
        "| four | 4 | 2 | 256 | 4.00 | 60 | 50.7 ± 2.4 % | - |",
    ]


def test_table_4_has_a_row_per_method_and_ours_last(content: dict[str, Any]) -> None:
    assert lines(methods_table(content)) == [
        "| method | 2 models | 4 models |",
        "| --- | ---: | ---: |",
        "| Single task models | 75.84 ± 1.76 % | 82.43 ± 4.40 % |",
        "| SLERP | 60.00 ± 2.00 % | - |",
        "| Direct search | 70.00 ± 1.00 % | **73.00 ± 1.00 %** |",
        "| NSGA-II | - | - |",
        "| MAP | **70.70 ± 1.76 %** | 72.84 ± 4.40 % |",
    ]


def test_metrics_of_different_units_are_scaled_and_the_table_says_so(
    content: dict[str, Any],
) -> None:
    table = methods_table({**content, "unit": "scaled"})

    assert lines(table)[-1] == "| MAP | **0.707 ± 0.018** | 0.728 ± 0.044 |"
    assert "1 is the best and 0 the worst value of a task" in table.caption
    assert "scores between 0 and 1" in methods_table(content).caption


def test_searches_with_as_many_models_are_told_apart(content: dict[str, Any]) -> None:
    two, four = content["runs"]

    table = methods_table({**content, "runs": [two, {**four, "models": 2}]})

    names = [column.name for column in table.columns]
    assert names == ["method", "2 models (two)", "2 models (four)"]


def test_fronts_have_a_row_per_search_and_method(content: dict[str, Any]) -> None:
    found = lines(fronts_table(content))

    assert len(found) == 2 + 2 + 3
    assert found[2:4] == [
        "| two | MAP | 30 | 16 | 0.980 | 0.023 | 0.035 | 0.014 | 0.028 | - |",
        "| two | random | 200 | 16 | 0.980 | 0.023 | 0.035 | 0.014 | 0.028 "
        "| 49.8 ± 0.3 % |",
    ]
