"""What a search will measure on a subset of the documents, or with a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fakes import LOSS, make_study

from mergekit_map.search.checks import forecast, probe_multiples
from mergekit_map.search.planning import default_evaluations
from mergekit_map.search.study import Study
from mergekit_map.types import Metric

SIZES = {"loss": 80, "right": 200}


def study_of(asked: Mapping[str, Any] | None = None, **search: Any) -> Study:
    tasks = {"loss": LOSS, "right": Metric(True, 0, 1)}
    study = make_study("x", tasks, documents=asked, **{"remeasure": 2, **search})
    return replace(study, anchors={**study.anchors, "soup": {"x": 0.5}})


@pytest.mark.parametrize(
    ("search", "searched"),
    [
        ({"evaluations": 9, "holdout": 0.2}, 9),
        ({"hours": 0.01}, default_evaluations(1)),  # what it takes without them
    ],
)
def test_all_documents_are_measured_at_each_merge(
    search: dict[str, Any], searched: int
) -> None:
    merges, times = probe_multiples(study_of(**search), SIZES)

    # Two points of the front, and the chosen merge.
    assert merges == searched + 2 + 1
    assert times == pytest.approx(dict.fromkeys(SIZES, merges))


def test_anchors_and_ends_are_on_all_documents_and_the_others_on_some() -> None:
    study = study_of({"loss": 20, "right": 100}, evaluations=9)

    _, times = probe_multiples(study, SIZES)

    # Three anchors, two points of the front, and the chosen merge.
    assert times == {"loss": 6 + 6 / 4, "right": 6 + 6 / 2}
    assert forecast(study).whole == 6
