"""What held-out documents say of a choice, on fronts made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fronts import make_front

from mergekit_map.results.front import Front
from mergekit_map.results.gain_sentences import confirmed_in_words
from mergekit_map.results.selection import judged

POINTS = [
    ([(0.72, 0.01), (1.9, 0.02)], [(0.70, 0.04), (2.0, 0.05)]),
    ([(0.50, 0.01), (1.5, 0.02)], [(None, None), (None, None)]),
]
ANCHORS = {
    "base": [(0.50, 0.04), (2.5, 0.05)],
    "one": [(0.60, 0.04), (1.9, 0.05)],
    "other": [(0.40, 0.04), (1.8, 0.05)],
    "soup": [(0.70, 0.04), (2.05, 0.05)],
}
ITEMS = 100


def measured(math_value: float, code: float) -> dict[str, Any]:
    return {
        "math": {"value": math_value, "stderr": 0.05},
        "code": {"value": code, "stderr": 0.06},
    }


def front(**changes: Any) -> Front:
    merges = [
        {"coefficients": {"a": 0.0, "b": 0.5}, "measured": measured(0.66, 2.1)},
        {
            "label": "base",
            "coefficients": {"a": 1.0, "b": 0.0},
            "measured": measured(0.51, 2.5),
        },
        {
            "label": "soup",
            "coefficients": {"a": 1.0, "b": 3.0},
            "measured": measured(0.655, 2.05),
        },
        {
            "label": "other",
            "coefficients": {"a": 1.0, "b": 2.0},
            "measured": {"code": {"value": 1.85, "stderr": 0.06}},
        },
    ]
    known = {"items": ITEMS, "merges": [0, 1, 2, 3]}
    holdout = {
        "share": 0.3,
        "documents": {"math": ITEMS, "code": ITEMS},
        "choices": 1,
        "merges": merges,
        "differences": {
            "math": {
                **known,
                "merges": [0, 1, 2],
                "stderr": [[0.02], [0.01, 0.02]],
                "answers": True,
            },
            "code": {**known, "stderr": [[0.02], [0.03, 0.02], [0.04, 0.03, 0.02]]},
        },
        **changes,
    }
    # Merges are counted through points and anchors.
    apart = {"items": 200, "merges": [0, 2], "stderr": [[0.01]]}
    made = make_front(POINTS, ANCHORS, holdout=holdout, differences={"code": apart})
    return judged(made)


def gains(found: Front) -> dict[tuple[str, str], Any]:
    assert found.holdout is not None
    return {(gain.task, gain.other): gain for gain in found.holdout.gains}


def test_differences_are_those_of_the_same_documents() -> None:
    found = gains(front())

    assert set(found) == {
        ("math", "base"),
        ("code", "base"),
        ("code", "other"),  # measured best of the single models in the search
        ("math", "soup"),
        ("code", "soup"),
    }
    base = found["code", "base"]
    assert base.held_out.value == pytest.approx(2.1 - 2.5)
    assert base.held_out.stderr == 0.02
    assert base.measured.value == pytest.approx(2.0 - 2.5)
    assert base.measured.stderr == 0.01  # item by item
    assert found["code", "soup"].measured.stderr == pytest.approx(
        math.hypot(0.05, 0.05)
    )


def test_a_promise_is_broken_where_it_is_off_by_more_than_chance() -> None:
    found = gains(front())

    # 0.4 is kept of 0.5 +- 0.01, and is itself known to 0.02.
    assert [key for key, gain in found.items() if gain.kept is False] == [
        ("code", "base")
    ]
    assert found["math", "base"].kept is True


def test_what_is_said() -> None:
    first, second, third, broken = confirmed_in_words(front())

    assert first == (
        "On 100 documents of each task that the search never saw, the chosen merge is "
        "better than base on math by 0.15 ± 0.02 (promised 0.20 ± 0.06) and code by "
        "0.40 ± 0.02 nats/token (promised 0.50 ± 0.01)."
    )
    assert second == (
        "It is worse than the best single model on code (other) by 0.25 ± 0.04 "
        "nats/token (promised 0.20 ± 0.07)."
    )
    assert third == (
        "It is within noise of soup on math (better by 0.01 ± 0.01, promised better by "
        "0.00 ± 0.06) and code (worse by 0.05 ± 0.03 nats/token, promised better by "
        "0.05 ± 0.07)."
    )
    assert broken.startswith(
        "The promise was off by more than chance for code against base"
    )


def test_a_merge_or_task_that_is_not_there_is_refused() -> None:
    apart = {"items": 9, "merges": [0, 9], "stderr": [[0.1]]}
    with pytest.raises(ValueError, match=r"differences\.code: no such merge"):
        front(differences={"code": apart})
    with pytest.raises(ValueError, match="holdout: the tasks are"):
        front(documents={"poems": 3})
