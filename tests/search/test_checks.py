"""What a search will measure on a subset of the documents, or with a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import LOSS, Recorder, logged, make_study, run

from mergekit_map.search.checks import forecast, probe_multiples
from mergekit_map.search.planning import default_evaluations
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement, Metric

SIZES = {"loss": 80, "right": 200}


def study_of(asked: Mapping[str, Any] | None = None, **search: Any) -> Study:
    tasks = {"loss": LOSS, "right": Metric(True, 0, 1)}
    study = make_study("x", tasks, documents=asked, **{"remeasure": 2, **search})
    return replace(study, anchors={**study.anchors, "soup": {"x": 0.5}})


@pytest.mark.parametrize(
    ("search", "searched", "held_out"),
    [
        ({"evaluations": 9}, 9, 0),
        # Of base, soup, best single model and choice, on a quarter of the documents.
        ({"evaluations": 9, "holdout": 0.2}, 9, 4 / 4),
        ({}, default_evaluations(1), 0),
        ({"hours": 0.01}, default_evaluations(1), 0),  # what it takes without them
    ],
)
def test_all_documents_are_measured_at_each_merge(
    search: dict[str, Any], searched: int, held_out: float
) -> None:
    merges, times = probe_multiples(study_of(**search), SIZES)

    # Two points of the front, and the chosen merge.
    assert merges == searched + 2 + 1
    assert times == pytest.approx(dict.fromkeys(SIZES, merges + held_out))


def test_anchors_and_ends_are_on_all_documents_and_the_others_on_some() -> None:
    study = study_of({"loss": 20, "right": 100}, evaluations=9)

    _, times = probe_multiples(study, SIZES)

    # Three anchors, two points of the front, and the chosen merge.
    assert times == {"loss": 6 + 6 / 4, "right": 6 + 6 / 2}
    assert forecast(study).whole == 6


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
    assert not found.ending.trusted
