"""What a search will measure on a subset of the documents, or with a budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes import LOSS, make_study

from mergekit_map.search.checks import forecast, probe_multiples
from mergekit_map.types import Metric

SIZES = {"loss": 80, "right": 200}
# Three anchors, two points of the front, and the chosen merge.
ENDS = 3 + 2 + 1


@pytest.mark.parametrize(
    ("documents", "search", "searched"),
    [
        ({}, {"evaluations": 9, "holdout": 0.2}, 9),
        ({}, {"hours": 0.01}, 6),  # as without them
        ({"loss": 20, "right": 100}, {"evaluations": 9}, 9),
    ],
)
def test_anchors_and_ends_are_on_all_documents_and_the_others_on_those_asked_for(
    documents: dict[str, int], search: dict[str, Any], searched: int
) -> None:
    tasks = {"loss": LOSS, "right": Metric(True, 0, 1)}
    study = make_study("x", tasks, documents=documents, remeasure=2, **search)
    study = replace(study, anchors={**study.anchors, "soup": {"x": 0.5}})

    merges, times = probe_multiples(study, SIZES)

    others = searched - 3
    assert merges == ENDS + others
    shares = {task: documents.get(task, size) / size for task, size in SIZES.items()}
    expected = {task: ENDS + share * others for task, share in shares.items()}
    assert times == pytest.approx(expected)
    assert not documents or forecast(study).whole == ENDS


def test_models_that_no_reference_point_is_are_no_measurements_on_all_documents() -> (
    None
):
    study = make_study("abcd", ["x"], ("base", "soup"), documents={"x": 5}, remeasure=0)

    assert forecast(study).whole == 2 + 1  # and the chosen merge
