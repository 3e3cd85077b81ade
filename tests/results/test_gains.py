"""What a chosen merge gains, on fronts made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fronts import NOT_MEASURED, Row, make_front

from mergekit_map.results.front import Front
from mergekit_map.results.gain_sentences import gains_in_words
from mergekit_map.results.gains import BEST_PARENT, gains
from mergekit_map.results.narrative import missed_as_measured

CHOSEN: Row = [(0.70, 0.04), (2.0, 0.05)]
ANCHORS: dict[str, Row] = {
    "base": [(0.50, 0.04), (2.5, 0.05)],
    "one": [(0.75, 0.04), (2.4, 0.05)],
    "other": [(0.40, 0.04), (1.9, 0.05)],
    "soup": [(0.69, 0.04), (2.2, 0.05)],
}
# Point, base, one, other and soup, in the order that differences count them in.
APART = {
    "items": 200,
    "merges": [0, 1, 2, 3, 4],
    "stderr": [[0.01], [0.02] * 2, [0.03] * 3, [0.04] * 4],
}


def front(measured: Row = CHOSEN, **others: Any) -> Front:
    predicted: Row = [(0.71, 0.03), (2.02, 0.04)]
    others.setdefault("differences", {"code": APART})
    return make_front([(predicted, measured)], ANCHORS, **others)


def test_amounts_are_larger_where_the_chosen_merge_is_better() -> None:
    rows = {rival.label: rival.tasks for rival in gains(front()).rivals}

    amounts = {
        label: [one.amount for one in tasks.values()] for label, tasks in rows.items()
    }
    assert amounts == {
        "base": pytest.approx([0.2, 0.5]),
        "soup": pytest.approx([0.01, 0.2]),
        BEST_PARENT: pytest.approx([-0.05, -0.1]),
    }


def test_errors_are_of_the_same_documents_where_there_are_some() -> None:
    rows = {rival.label: rival.tasks for rival in gains(front()).rivals}

    assert rows["soup"]["code"].stderr == 0.04
    assert rows[BEST_PARENT]["code"].stderr == 0.03
    assert rows["soup"]["math"].stderr == pytest.approx(math.hypot(0.04, 0.04))


def test_shares_are_of_the_gain_over_the_base() -> None:
    assert gains(front()).kept == pytest.approx({"math": 0.2 / 0.25, "code": 0.5 / 0.6})
    best: Row = [(0.75, 0.04), (1.9, 0.05)]
    assert gains(front(best)).kept == pytest.approx({"math": 1, "code": 1})
    assert gains(front(ANCHORS["base"])).kept == pytest.approx({"math": 0, "code": 0})


def test_verdicts_go_by_paired_errors_and_all_comparisons_together() -> None:
    found = gains(front())

    assert found.where("base", "better") == ["math", "code"]
    assert found.where("soup", "better") == ["code"]
    assert found.where("soup", "noise") == ["math"]
    assert found.where(BEST_PARENT, "worse") == ["code"]
    # As if both erred apart, 0.1 is 1.4 of 0.07.
    assert gains(front(differences={})).where(BEST_PARENT, "worse") == []


def test_a_point_that_was_not_measured_is_held_against_others_as_predicted() -> None:
    found = gains(front(NOT_MEASURED))

    assert found.sources == {"math": "predicted", "code": "predicted"}
    soup = found.rival("soup")
    assert soup is not None
    assert soup.tasks["code"].amount == pytest.approx(2.2 - 2.02)
    # Its documents may differ from the soup's as much as those of any other merge.
    assert soup.tasks["code"].stderr == pytest.approx(math.hypot(0.04, 0.04))
    assert soup.tasks["math"].stderr == pytest.approx(
        math.hypot(0.03, 0.04 * math.sqrt(2))
    )


def test_the_gain_is_said_in_a_few_sentences() -> None:
    assert gains_in_words(front()) == [
        "The chosen merge keeps 80 % of the best parent's gain over the base on math "
        "and 83 % on code.",
        "It is better than the soup on code and as good as the soup, within noise, on "
        "math.",
        "As a perplexity: code 7.39 (base 12.2, soup 9.03, other 6.69).",
    ]


def test_a_limit_that_is_missed_by_more_than_noise_is_said() -> None:
    # 80 % of the gain on math is 0.7, and was measured; 90 % would be 0.725, and the
    # standard error of the difference from the base is 0.057.
    kept = front(select={"require": {"math": "90%"}})
    missed = front(select={"require": {"math": "90%", "code": 1.98}})
    beaten = front(select={"not_worse_than": ["one"], "margin": 0})

    assert missed_as_measured(front()) == missed_as_measured(kept) == []
    assert missed_as_measured(missed) == [
        "As measured, point 0 does not keep code at most 1.98 nats/token, perplexity "
        "7.24 (measured 2 ± 0.05, 0.02 short); require a little more than is needed, "
        "or choose another point."
    ]
    assert "not keep math at least 0.75" in missed_as_measured(beaten)[0]
    allowed = front(select={"not_worse_than": ["one"]})
    assert missed_as_measured(allowed) == []
