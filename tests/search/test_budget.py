"""What a search will measure on a subset of the documents, or with a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import LOSS, Recorder, logged, make_study, run

from mergekit_map.search.budget import forecast, price
from mergekit_map.search.planning import default_evaluations
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement, Metric

SIZES = {"loss": 80, "right": 200}
SECONDS = {"loss": 8.0, "right": 2.0}


def study_of(asked: Mapping[str, Any] | None = None, **search: Any) -> Study:
    tasks = {"loss": LOSS, "right": Metric(True, 0, 1)}
    study = make_study("x", tasks, documents=asked, **{"remeasure": 2, **search})
    return replace(study, anchors={**study.anchors, "soup": {"x": 0.5}})


def test_a_search_on_all_documents_costs_all_of_them_each_time() -> None:
    study = study_of(evaluations=9)

    found = price(study, SIZES, SECONDS)

    assert found.merges == 9
    # Two points of the front, and what is chosen.
    assert found.total == pytest.approx((9 + 2 + 1) * 10)
    ahead = forecast(study, checkpoints=False)
    assert (ahead.whole, ahead.front) == (9 + 3, 3)


def test_anchors_and_ends_are_on_all_documents_and_the_others_on_some() -> None:
    study = study_of({"loss": 20, "right": 50}, evaluations=9)

    found = price(study, SIZES, SECONDS)

    # Three anchors, two points of the front, what is chosen; a quarter of each.
    assert found.total == pytest.approx(6 * 10 + 6 * (2 + 0.5))
    assert forecast(study, checkpoints=False).whole == 6


@pytest.mark.parametrize(
    ("budget", "merges"),
    [
        # The end takes three merges' worth, and the anchors and the first design four.
        ({"hours": 100 / 3600}, 7),
        ({"hours": 99 / 3600}, 6),
        ({"hours": 3.0}, 60),
        ({"hours": 3.0, "evaluations": 8}, 8),
    ],
)
def test_a_budget_pays_for_so_many_merges(budget: dict[str, Any], merges: int) -> None:
    found = price(study_of(**budget), SIZES, SECONDS)

    assert found.merges == merges
    assert not found.exceeds(study_of(**budget))


def test_the_budget_and_not_the_default_ends_a_search(tmp_path: Path) -> None:
    def rippled(coefficients: Mapping[str, float], task: str) -> Measurement:
        x = coefficients["x"]
        value = 0.5 + 0.4 * math.sin(40 * x + len(task))
        return Measurement(value, None, 10, seconds=10.0)

    merges = default_evaluations(1) + 4
    hours = 20 * (merges + 2 + 1) / 3600
    study = study_of(hours=hours, remeasure=2)

    found = run(study, tmp_path, Recorder(rippled))

    lines = logged(tmp_path)
    assert sum(e.seconds for e in lines) <= 3600 * hours + 1e-6
    assert sum(e.role != "front" for e in lines) == 2 * merges
    assert (found.ending.spent, found.ending.trusted) == (True, False)
