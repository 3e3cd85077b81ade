"""Findings on fronts made by hand: predictions, and merges that dominate the chosen."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fronts import MATH, NOT_MEASURED, Row, as_json, from_json, make_front

from mergekit_map.results.findings import (
    dominating_merge,
    predictions,
    prior_predictions,
)
from mergekit_map.results.front import Front

POINT: Row = [(0.5, 0.03), (2.0, 0.04)]


def foretelling(*before: tuple[float | None, float | None], **others: Any) -> Front:
    """Make a front of one point at math 0.5 ± 0.03 and code 2.0 ± 0.04."""
    front = make_front([(POINT, POINT), (POINT, NOT_MEASURED)], **others)
    content = as_json(front)
    values = [{"value": value, "stderr": stderr} for value, stderr in before]
    content["points"][0]["foretold"] = dict(zip(front.tasks, values, strict=True))
    return from_json(content)


def test_a_miss_is_counted_in_standard_errors_of_prediction_and_measurement() -> None:
    errors = prior_predictions(foretelling((0.6, 0.04), (2.0, 0.04)))

    assert list(errors) == [pytest.approx(0.1 / math.hypot(0.03, 0.04)), 0]


def test_what_documents_share_is_no_excuse_for_a_miss() -> None:
    rows: list[Row] = [[(0.5, 0.1)], [(0.6, 0.1)]]
    kept = {"math": {"items": 100, "merges": [0, 1], "stderr": [[0.02]]}}
    front = make_front(
        [(row, row) for row in rows], tasks={"math": MATH}, differences=kept
    )
    content = as_json(front)
    content["points"][0]["foretold"] = {"math": {"value": 0.6, "stderr": 0.0}}

    assert list(prior_predictions(from_json(content))) == [
        pytest.approx(0.1 / (0.02 / math.sqrt(2)))
    ]


def test_only_what_was_foretold_and_then_measured_is_a_test() -> None:
    assert len(list(prior_predictions(foretelling((None, None), (2.0, 0.1))))) == 1
    assert list(prior_predictions(make_front([(POINT, POINT)]))) == []


@pytest.mark.parametrize(
    ("fit", "reliable", "poor"),
    [
        ({"loo_r2": 0.93, "front_error": 0.1}, True, []),
        ({"loo_r2": 0.4, "expected_r2": 0.89, "front_error": 0.1}, True, ["math"]),
        ({"loo_r2": 0.99, "front_error": 0.11}, False, []),
        ({"loo_r2": 0.4, "expected_r2": 0.74, "front_error": 0.05}, False, ["math"]),
        ({"loo_r2": 0.4, "expected_r2": 0.93}, True, []),
        ({"loo_r2": None, "expected_r2": 0.89}, False, ["math"]),
        ({"loo_r2": None}, False, ["math"]),
    ],
)
def test_predictions_are_reliable_where_they_are_good_on_the_front(
    fit: dict[str, float | None], reliable: bool, poor: list[str]
) -> None:
    row = [(0.5, 0.01)]
    tasks = {"math": {**MATH, "fit": {"n": 9, "r2": 0.9, "loo_r2": 0.95, **fit}}}

    found = predictions(make_front([(row, row)], tasks=tasks))

    assert (found.reliable, found.poor) == (reliable, poor)


def paired(values: list[float], stderr: list[list[float]], items: int = 100) -> Front:
    """Make a front of math alone, whose values are known to 0.1 each."""
    rows: list[Row] = [[(value, 0.1)] for value in values]
    kept = {"items": items, "merges": list(range(len(values))), "stderr": stderr}
    points = [(row, row) for row in rows]
    return make_front(points, tasks={"math": MATH}, differences={"math": kept})


def test_dominance_is_judged_by_paired_standard_errors() -> None:
    found = dominating_merge(paired([0.5, 0.6], [[0.02]]))

    assert found is not None
    assert (found.tasks, found.amounts) == (["math"], pytest.approx([0.1]))
    assert found.stderrs == [0.02]
    assert dominating_merge(paired([0.5, 0.6], [[0.06]])) is None
    unknown = [([(value, None)],) * 2 for value in (0.5, 0.6)]
    assert dominating_merge(make_front(unknown, tasks={"math": MATH})) is None
