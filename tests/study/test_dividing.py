"""How often merges are asked, and what a document costs."""

from __future__ import annotations

from typing import Any

from mergekit_map.results.log import Evaluation, merge_key
from mergekit_map.study.dividing import _seconds_per_document, times_asked
from mergekit_map.study.measuring import numbered_parts


def line(x: float, n: int, seconds: float, **more: Any) -> Evaluation:
    return Evaluation(
        coefficients={"x": x},
        task="loss",
        role="refinement",
        **{"value": 1.0, "stderr": 0.1, **more},
        n=n,
        seconds=seconds,
        merge="m",
        definition="d",
    )


def part(x: float, n: int, **more: Any) -> Evaluation:
    return line(x, n, n / 4, of=96, documents=tuple(range(n)), **more)


def test_a_merge_is_asked_once_a_round() -> None:
    one, other = {"x": 0.1}, {"x": 0.2}
    rounds = [
        [("design", one), ("design", other), ("design", one)],
        [("refinement", {"x": 0.1})],
    ]

    assert times_asked(rounds) == {merge_key(one): 2, merge_key(other): 1}


def test_parts_are_numbered_and_what_raised_is_not_counted() -> None:
    lines = [
        part(0.1, 8),
        part(0.2, 8, value=float("nan")),
        line(0.1, 0, 1.0, value=float("nan"), error="no memory"),
        part(0.1, 16),
        part(0.2, 16),
        line(0.1, 96, 24.0),
    ]

    assert [number for _, number in numbered_parts(lines)] == [1, 1, 2, 2, 2, 3]


def test_a_cost_is_known_to_a_factor_of_two() -> None:
    lines = [line(i / 10, 10, seconds) for i, seconds in enumerate((4.0, 5.0, 9.0))]
    slower = [line(i / 10, 10, 1.3 * s) for i, s in enumerate((4.0, 5.0, 9.0))]

    assert _seconds_per_document(lines, "loss") == 0.5
    assert _seconds_per_document(slower, "loss") == 0.5
    assert _seconds_per_document(lines, "other") == 1.0
    assert _seconds_per_document([line(0.1, 0, 0.0)], "loss") == 1.0
