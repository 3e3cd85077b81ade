"""What is left is told by the pace of measurements, and not by what was loaded."""

from __future__ import annotations

import pytest

from mergekit_map.results.log import Evaluation
from mergekit_map.study.pace import Pace


def measured(task: str, seconds: float, n: int = 10) -> Evaluation:
    return Evaluation(
        coefficients={"a": 0.5},
        task=task,
        role="design",
        value=1.0,
        stderr=None,
        n=n,
        seconds=seconds,
        merge="m",
        definition=task,
    )


KNOWN = [measured(task, s) for s in (2.0, 2.0) for task in ("slow", "slow")]
BOTH = [*KNOWN, *[measured("fast", 1.0) for _ in range(4)]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_nothing_is_told_before_the_first_measurement() -> None:
    assert Pace().left(10) is None


@pytest.mark.usefixtures("clock")
def test_tasks_count_at_their_own_pace() -> None:
    pace = Pace(BOTH)
    pace.begin("slow")

    assert pace.left(1) == 2.0
    assert pace.left(11) == 2.0 + 10 * 1.5


def test_what_is_loaded_does_not_count(clock: list[float]) -> None:
    pace = Pace()
    pace.begin("one")
    clock[0] += 600  # of which the models take 597
    pace.pause(597)
    pace.end(measured("one", 600.0))

    assert pace.left(4) == pytest.approx(12.0)


def test_a_first_measurement_of_an_earlier_run_holds_its_loading() -> None:
    known = [measured("one", s) for s in (500.0, 3.0, 3.0)]

    assert Pace(known).left(2) == 6.0


def test_what_is_begun_counts_by_the_share_that_is_done(clock: list[float]) -> None:
    pace = Pace(BOTH)
    pace.begin("slow")
    clock[0] += 30

    assert pace.left(1) == 0.0
    assert pace.left(1, share=0.25) == pytest.approx(90.0)


@pytest.mark.usefixtures("clock")
def test_a_budget_is_the_most_that_is_left() -> None:
    spent = sum(e.seconds for e in BOTH)

    hours = Pace(BOTH, hours=(spent + 5) / 3600)
    documents = Pace(BOTH, documents=2 * sum(e.n for e in BOTH))

    assert hours.left(100) == pytest.approx(5.0)
    assert documents.left(100) == pytest.approx(spent)


def test_measurements_at_the_same_time_are_no_slower_for_it(clock: list[float]) -> None:
    pace = Pace()
    for waited in (4.0, 0.0) * 3:  # of two that take four seconds each, side by side
        pace.begin("one")
        clock[0] += waited
        pace.end(measured("one", 4.0))

    assert pace.left(10) == pytest.approx(10 * 4.0 / 2)
