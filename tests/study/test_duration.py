"""How long a search takes with some workers: closed forms."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import LOSS

from mergekit_map.config.specs import SearchSpec, SelectSpec
from mergekit_map.measurement import Measurement
from mergekit_map.study.duration import Parts, durations, time_planning
from mergekit_map.study.study import Study

PARTS = Parts(
    loading=100.0,
    writing=1.0,
    planning=0.5,
    tasks={"long": 60.0, "short": 12.0},
    pieces={"long": 10, "short": 4},
    documents={"long": 10, "short": 4},
)
FRONT = 3  # points that are measured in the end


def study_of(**search: Any) -> Study:
    return Study(
        bounds={"x": (0.0, 1.0)},
        anchors={"base": {"x": 0.0}, "a": {"x": 1.0}, "soup": {"x": 0.5}},
        tasks={"long": LOSS, "short": LOSS},
        definitions={"long": "l", "short": "s"},
        merge="m",
        search=SearchSpec(**{"remeasure": FRONT - 1, "evaluations": 9, **search}),
        select=SelectSpec(),
    )


def test_one_worker_does_everything_one_after_the_other() -> None:
    (one,) = durations(study_of(), PARTS, 9, [1])

    assert (one.writing, one.measuring) == (9 + FRONT, (9 + FRONT) * 72)
    assert one.seconds == 100 + (9 + FRONT) * (1 + 72) + one.planning
    assert one.bound == "measuring"


def test_a_search_planned_at_once_is_shared_out_by_merges() -> None:
    (three,) = durations(study_of(refine=False), PARTS, 9, [3])

    # Nine merges in three turns; then each of the front by its pieces: 6 + 6 + 6 + 6
    # seconds on one worker, and the others have no more.
    assert three.measuring == 3 * 72 + FRONT * 24


def test_rounds_of_one_merge_are_no_shorter_than_their_longest_piece() -> None:
    (many,) = durations(study_of(), PARTS, 9, [64])

    rounds = 1 + (9 - 4) + FRONT
    assert many.measuring == rounds * 6
    assert many.writing == rounds
    assert many.planning == rounds * 0.5
    assert many.bound == "loading the models"


def test_it_says_which_task_others_wait_for() -> None:
    whole = Parts(**{**vars(PARTS), "pieces": {"long": 1, "short": 4}})

    (many,) = durations(study_of(), whole, 9, [64])

    assert many.bound == "long, which is one piece"
    (pieces,) = durations(study_of(), Parts(**{**vars(PARTS), "loading": 1}), 9, [64])
    assert pieces.bound == "the pieces of long"


def test_more_workers_never_take_longer() -> None:
    found = [d.seconds for d in durations(study_of(), PARTS, 9, range(1, 40))]

    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("strategy", ["map", "bayesian", "nested"])
def test_every_merge_is_counted_once_whatever_the_strategy(strategy: str) -> None:
    study = study_of(strategy=strategy, evaluations=None)

    found = durations(study, PARTS, 12, [1])

    assert [d.writing for d in found] == ([] if strategy == "nested" else [12 + FRONT])


def test_planning_is_timed_where_a_search_refines() -> None:
    measured = {task: Measurement(2.0, 0.1, 10) for task in PARTS.tasks}

    assert 0 < time_planning(study_of(), measured) < 60
    assert time_planning(study_of(refine=False), measured) == 0
