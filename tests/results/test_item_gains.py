"""Items of every kind of record, by name, value and what was gained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fronts import MATH, make_front

from mergekit_map.results.samples import ItemRecords
from mergekit_map.types import Metric
from mergekit_map.utils.files import digest

ONE, OTHER = {"a": 0.0, "b": 0.5}, {"a": 0.01, "b": 0.5}
HIGHER = Metric(higher_is_better=True, lower=None, upper=None)
LOWER = Metric(higher_is_better=False, lower=0.0, upper=None)


def compare(
    folder: Path, contents: list[dict[str, Any]], values: list[float], metric: Metric
) -> list[tuple[str, float]]:
    """File the records of two merges, and hold the first against the second."""
    rows = [([(value, 0.1)], [(value, 0.1)]) for value in values]
    front = make_front(rows, tasks={"math": MATH})
    for coefficients, content in zip((ONE, OTHER), contents, strict=True):
        path = folder / "math" / f"{digest(coefficients)}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"coefficients": coefficients, **content}))
    records = ItemRecords(folder, {"math": "known"})
    found = records.compare(front.points[0], front.points[1], "math", metric)
    return [(item.name, pytest.approx(item.ahead)) for item in found]


def test_questions_of_a_group_are_named_by_their_task(tmp_path: Path) -> None:
    contents = [
        {"samples": [{"task": t, "doc_id": 7, "doc_hash": "x", "acc": a,
                      "loglikelihoods": [-1.0, -2.0]}
                     for t, a in zip(("sums", "words"), answers, strict=True)]}
        for answers in ((1.0, 0.0), (0.0, 0.0))
    ]  # fmt: skip

    found = compare(tmp_path, contents, [0.5, 0.0], HIGHER)

    assert found == [("sums 7", 1.0), ("words 7", 0.0)]


def test_answers_count_where_they_are_kept(tmp_path: Path) -> None:
    # A ratio of sums, whose records hold two numbers each.
    contents = [
        {
            "samples": [{"task": "t", "doc_id": i, "word": [v, 2.0]} for i in (0, 1)],
            "answers": {
                "ids": [0, 1],
                "values": [v, v],
                "weights": [2.0, 2.0],
                "exponential": True,
            },
            "definition": "known",
        }
        for v in (0.0, 1.0)
    ]

    found = compare(tmp_path, contents, [1.0, 2.718281828459045], LOWER)

    assert found == [("document 0", 1.0), ("document 1", 1.0)]
