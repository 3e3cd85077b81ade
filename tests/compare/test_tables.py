from __future__ import annotations

import csv
import io
import math

import pytest

from mergekit_map.compare.tables import Column, Spread, Table, csv_text, markdown


@pytest.fixture
def table() -> Table:
    return Table(
        name="methods",
        title="Sums",
        caption="What it says.",
        columns=[
            Column("method"),
            Column("merges"),
            Column("2 models", percent=True, digits=1, better="higher"),
            Column("GD", digits=2, better="lower"),
        ],
        rows=[
            ["ideal", 2, Spread(0.9, 0.01), 0.001],
            ["soup", 1, Spread(0.671, 0.0125), 0.5],
            ["a|b", None, None, 0.25],
            ["MAP", 30, Spread(0.71, 0.002), math.nan],
        ],
        beyond=[0],
    )


def test_markdown_has_rounded_numbers_and_bold_best_cells(table: Table) -> None:
    assert markdown(table) == (
        "## Sums\n"
        "\n"
        "| method | merges | 2 models | GD |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| ideal | 2 | 90.0 ± 1.0 % | 0.00 |\n"
        "| soup | 1 | 67.1 ± 1.2 % | 0.50 |\n"
        "| a\\|b | - | - | **0.25** |\n"
        "| MAP | 30 | **71.0 ± 0.2 %** | - |\n"
        "\n"
        "What it says.\n"
    )


def test_csv_has_numbers_in_full_and_deviations_beside_them(table: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(table))))

    assert list(rows[0]) == ["method", "merges", "2 models", "2 models std", "GD"]
    assert [float(row["2 models"] or "nan") for row in rows[1::2]] == [0.671, 0.71]
    assert rows[1]["2 models std"] == "0.0125"
    assert rows[2] == {
        "method": "a|b",
        "merges": "",
        "2 models": "",
        "2 models std": "",
        "GD": "0.25",
    }
    assert rows[3]["GD"] == ""
