"""Which items a merge won: counted from records, without what they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mergekit_map.results.samples import NO_ITEMS, Items, read_items, won_items
from mergekit_map.types import Metric

SCORE, LOSS = Metric(True, 0, 1), Metric(False, 0, None)


def items(*values: float) -> Items:
    known = {("", i): value for i, value in enumerate(values)}
    return Items(known, dict.fromkeys(known, 1.0))


def test_what_one_wins_the_other_loses_and_a_loss_turns_it_around() -> None:
    rng = np.random.default_rng(0)
    one, other = items(*rng.normal(size=40)), items(*rng.normal(size=40))

    ours, theirs = won_items(one, other, SCORE), won_items(other, one, SCORE)
    turned = won_items(one, other, LOSS)

    assert ours is not None
    assert theirs is not None
    assert turned is not None
    assert (
        (ours.won, ours.lost) == (theirs.lost, theirs.won) == (turned.lost, turned.won)
    )
    assert ours.won + ours.lost + ours.level == 40
    assert dict(ours.most) == {name: -ahead for name, ahead in theirs.most}


def test_items_are_compared_that_both_were_measured_on() -> None:
    found = won_items(items(1, 1), items(0, 1, 0, 0), SCORE)

    assert found is not None
    assert (found.won, found.lost, found.level) == (1, 0, 1)
    assert won_items(items(1), NO_ITEMS, SCORE) is None


ANSWERS = {"ids": [2, 5], "values": [1.0, 4.0], "weights": [3.0, 1.0]}
# What a file of records holds, and the value that these are of.
RECORDS: list[tuple[dict[str, Any], float, list[float]]] = [
    ({"answers": {**ANSWERS, "exponential": False}}, 1.75, [1, 4]),
    ({"answers": {**ANSWERS, "exponential": True}}, math.exp(1.75), [1, 4]),
    (
        {
            "samples": [
                {"block": 0, "loss": 1.0, "tokens": 30},
                {"block": 1, "loss": 2.0, "tokens": 10},
            ]
        },
        1.25,
        [1, 2],
    ),
    (
        {"samples": [{"document": i, "value": v} for i, v in enumerate([1, 0, 0])]},
        1 / 3,
        [1, 0, 0],
    ),
    (
        {
            "samples": [
                {"task": "mc", "doc_id": i, "doc_hash": "x", "acc": acc}
                for i, acc in enumerate([1.0, 0.0])
            ]
        },
        0.5,
        [1, 0],
    ),
]


@pytest.mark.parametrize(("content", "value", "values"), RECORDS)
def test_reads_what_tasks_record(
    content: dict[str, Any], value: float, values: list[float]
) -> None:
    assert list(read_items(content, value).values.values()) == values
    # Of another value these are not the records.
    assert read_items(content, value + 0.01) is NO_ITEMS


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"samples": []},
        {"samples": ["a text"]},
        {"samples": [{"text": "a"}]},
        {"samples": [{"loss": None, "block": 0, "tokens": 1}]},
        {"answers": {"ids": [1]}},
        {"answers": {**ANSWERS, "weights": [0, 0], "exponential": False}},
    ],
)
def test_records_of_another_form_say_nothing(content: dict[str, Any]) -> None:
    assert read_items(content, 1.0) is NO_ITEMS
