"""Predictions that were made before measuring, held against what was measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fronts import CODE, MATH, NOT_MEASURED, Row, as_json, from_json, make_front

from mergekit_map.results.diagnostics import foretold, prior_predictions
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
    one, other = prior_predictions(foretelling((0.6, 0.04), (2.0, 0.04)))

    assert one.errors == pytest.approx(0.1 / math.hypot(0.03, 0.04))
    assert not one.within_95
    assert (other.errors, other.within_95) == (0, True)


@pytest.mark.parametrize(
    ("value", "stderr", "held"),
    [(0.5979, 0.04, True), (0.5981, 0.04, False), (0.5587, None, True)],
)
def test_a_prediction_holds_within_two_standard_errors_but_for_a_hair(
    value: float, stderr: float | None, held: bool
) -> None:
    test, _ = prior_predictions(foretelling((value, stderr), (2.0, 0.1)))

    assert test.within_95 == held


def test_what_documents_share_is_no_excuse_for_a_miss() -> None:
    rows: list[Row] = [[(0.5, 0.1)], [(0.6, 0.1)]]
    kept = {"math": {"items": 100, "merges": [0, 1], "stderr": [[0.02]]}}
    front = make_front(
        [(row, row) for row in rows], tasks={"math": MATH}, differences=kept
    )
    content = as_json(front)
    content["points"][0]["foretold"] = {"math": {"value": 0.6, "stderr": 0.0}}

    (test,) = prior_predictions(from_json(content))

    assert test.errors == pytest.approx(0.1 / (0.02 / math.sqrt(2)))


def test_only_what_was_foretold_and_then_measured_is_a_test() -> None:
    front = foretelling((None, None), (2.0, 0.1))

    assert [test.task for test in prior_predictions(front)] == ["code"]
    # Of what was not measured there is a prediction, and no test.
    assert foretold(front.points[1]) == front.points[1].predicted
    assert list(prior_predictions(make_front([(POINT, POINT)]))) == []


def test_predictions_with_honest_standard_errors_hold_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    truth = rng.normal(0.5, 0.1, size=(n, 2))
    said = truth + rng.normal(size=(n, 2)) * [0.01, 0.02]
    seen = truth + rng.normal(size=(n, 2)) * [0.02, 0.01]
    merges = [((i / n, 0.1), [(a, 0.02), (b, 0.01)]) for i, (a, b) in enumerate(seen)]
    tasks = {"math": MATH, "code": CODE}
    content = as_json(make_front([(POINT, NOT_MEASURED)], {}, merges, tasks=tasks))
    for merge, (a, b) in zip(content["merges"], said, strict=True):
        merge["foretold"] = {
            "math": {"value": a, "stderr": 0.01},
            "code": {"value": b, "stderr": 0.02},
        }

    held = [test.within_95 for test in prior_predictions(from_json(content))]

    assert len(held) == 2 * n
    # Three standard errors of so many cases.
    assert abs(np.mean(held) - 0.95) < 3 * math.sqrt(0.95 * 0.05 / (2 * n))
