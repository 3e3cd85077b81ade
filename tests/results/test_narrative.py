"""The verdicts, word by word, on fronts made by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fronts import MATH, NOT_MEASURED, Row, as_json, from_json, make_front

from mergekit_map.results.front import Front
from mergekit_map.results.narrative import verdicts_in_words

# Math falls as code, where lower is better, gets better.
TRADING: list[tuple[Row, Row]] = [
    ([(0.70, 0.01), (2.80, 0.02)], [(0.70, 0.03), (2.81, 0.04)]),
    ([(0.65, 0.01), (2.40, 0.02)], [(0.64, 0.03), (2.41, 0.04)]),
    ([(0.50, 0.01), (2.10, 0.02)], NOT_MEASURED),
]
ROWS = [row for row, _ in TRADING]


def verdicts(front: Front) -> list[str]:
    return list(verdicts_in_words(front))


def about(front: Front, word: str) -> list[str]:
    return [sentence for sentence in verdicts(front) if word in sentence]


def predictions(*rows: Row) -> Front:
    return make_front([(row, NOT_MEASURED) for row in rows])


def test_a_front_within_noise_is_no_trade_off() -> None:
    noise = 0.3
    front = predictions(*([(m, noise), (c, noise)] for (m, _), (c, _) in ROWS))

    assert verdicts(front)[0] == (
        "There is no trade-off: as predicted, the whole front differs by less than the "
        "noise on every task; take point 1."
    )


@pytest.mark.parametrize(
    "row",
    [
        [(0.80, 0.03), (3.00, 0.04)],  # the best math, by more than noise
        [(0.60, 0.03), (2.42, 0.04)],  # behind on both, but within noise
        [(0.63, 0.03), (2.40, 0.04)],  # ahead on code, if only by noise
    ],
)
def test_an_anchor_that_nothing_dominates_is_told_in_plain_words(row: Row) -> None:
    front = make_front(TRADING, {"expert": row}, selected=1)

    assert about(front, "expert") == ["No measured merge dominates expert."]


def test_an_anchor_that_dominates_the_chosen_merge_is_the_better_choice() -> None:
    front = make_front(TRADING, {"expert": [(0.75, 0.03), (2.20, 0.04)]}, selected=1)

    assert about(front, "expert") == [
        "No measured merge dominates expert.",
        "As measured, expert dominates the chosen point 1: better on math by 2.6 "
        "standard errors (0.75 ± 0.03 against 0.64 ± 0.03) and code by 3.7 standard "
        "errors (2.2 ± 0.04 against 2.41 ± 0.04 nats/token, lower is better). So "
        "expert is the better choice.",
    ]


def test_noise_that_is_not_known_is_not_claimed_to_be_exceeded() -> None:
    points = [(row, NOT_MEASURED) for row in ROWS]
    rows = [((0.5, 0.5), [(0.5, None), (2.0, None)])]
    front = make_front(points, {"base": [(0.5, None), (2.5, None)]}, rows)

    assert about(front, "dominates base") == [
        "As measured, the merge with a=0.5, b=0.5 dominates base: better on code (2 "
        "against 2.5 nats/token, lower is better; standard errors unknown), level on "
        "math."
    ]
    # An import without a standard error, by less than the noise of the other.
    rows = [((0.5, 0.5), [(0.5, None), (2.46, None)])]
    front = make_front(points, {"base": [(0.5, 0.1), (2.5, 0.04)]}, rows)
    assert about(front, "base") == ["No measured merge dominates base."]


@pytest.mark.parametrize(
    ("measured", "expected"),
    [(0.699, "agree within 2"), (0.701, "0.701 ± 0.02, 2.0 standard errors apart")],
)
def test_two_standard_errors_apart_is_where_agreement_ends(
    measured: float, expected: str
) -> None:
    # 0.65 and 0.70 are 0.05 apart: 2 * sqrt(0.015**2 + 0.02**2).
    reading = [(measured, 0.02)]
    front = make_front([([(0.65, 0.015)], reading)], tasks={"math": MATH})

    assert expected in verdicts(front)[1]


def test_a_task_turned_round_in_values_and_direction_changes_the_wording_only() -> None:
    front = make_front(TRADING, {"base": [(0.40, 0.03), (2.90, 0.04)]}, selected=1)
    content = as_json(front)
    content["tasks"]["code"]["direction"] = "maximize"
    for merge in [*content["points"], *content["anchors"]]:
        for kind in ("predicted", "measured"):
            if merge[kind]["code"]["value"] is not None:
                merge[kind]["code"]["value"] *= -1
    turned = from_json(content)

    assert "lower is better" in about(front, "base")[0]
    plain = " ".join(verdicts(front)).replace(", lower is better", "")

    assert " ".join(verdicts(turned)).replace("-", "") == plain.replace("-", "")


def with_fit_errors(**fit: float | None) -> list[str]:
    row = ([0.5, 0.01], [1.0, 0.01])
    tasks = {"math": {**MATH, "fit": {"n": 9, "r2": 0.9, "loo_r2": 0.95, **fit}}}
    front = make_front([(row[:1], row[:1])], tasks=tasks)
    return about(front, "Predictions")


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        ({"loo_r2": 0.93, "front_error": 0.1}, []),
        (
            {"loo_r2": 0.89, "error": 0.123},
            [
                "(over the whole box R² 0.89 left out one by one, off by 12 % of its "
                "range):"
            ],
        ),
        ({"front_error": 0.11}, ["(near the front off by 11 % of the range there):"]),
        ({"loo_r2": 0.4, "expected_r2": 0.93}, []),
        ({"loo_r2": None, "expected_r2": 0.93}, []),
        (
            {"loo_r2": None, "expected_r2": 0.89},
            ["(over the whole box R² 0.89 by their own standard errors):"],
        ),
        (
            {"loo_r2": 0.7, "expected_r2": 0.89},
            [
                "(over the whole box R² 0.89 by their own standard errors, 0.70 left "
                "out one by one):"
            ],
        ),
        ({"loo_r2": None, "front_error": 0.05}, []),  # says that it cannot be checked
    ],
)
def test_predictions_may_be_poor_on_the_whole_box_and_near_the_front(
    fit: dict[str, float | None], expected: list[str]
) -> None:
    found = with_fit_errors(**fit)

    assert len(found) == len(expected)
    for line, part in zip(found, expected, strict=True):
        assert part in line


def ended(**ending: Any) -> str:
    """Say how a search ended that took 10 of 12 merges, the last two as predicted."""
    known = {"evaluations": 10, "allowed": 12, "trusted": True, "quiet": 2}
    known |= {"error": 0.004, "task": "math", "hope": 0.001, **ending}
    return verdicts(make_front(TRADING, ending=known))[1]


def paired(
    values: list[float], stderr: list[list[float]], items: int = 100, **others: Any
) -> Front:
    """Make a front of math alone, whose values are known to 0.1 each."""
    rows: list[Row] = [[(value, 0.1)] for value in values]
    merges = list(range(len(values)))
    kept = {"math": {"items": items, "merges": merges, "stderr": stderr}}
    points = [(row, row) for row in rows[:-1]]
    tasks = {"math": MATH}
    others = {"differences": kept, **others}
    return make_front(points, {"base": rows[-1]}, tasks=tasks, **others)


def test_differences_are_judged_by_their_own_standard_errors() -> None:
    front = paired([0.6, 0.5], [[0.02]])

    assert about(front, "base") == [
        "As measured, the chosen point 0 dominates base: better on math by 5.0 "
        "standard errors (0.6 ± 0.1 against 0.5 ± 0.1)."
    ]
    assert about(paired([0.6, 0.5], [[0.02]], differences={}), "base") == [
        "No measured merge dominates base."
    ]
    # Nor does a lucky draw of documents hide what is behind.
    ahead = {"text": {"items": 9, "merges": [0, 1], "stderr": [[0.02]]}}
    rows = [[(0.9, 0.1), (0.5, 0.1)], [(0.1, 0.1), (0.56, 0.1)]]
    tasks = {"math": MATH, "text": MATH}
    front = make_front(
        [(rows[0], rows[0])], {"base": rows[1]}, tasks=tasks, differences=ahead
    )
    assert about(front, "base") == ["No measured merge dominates base."]


def eight(first: float) -> Front:
    """Make a front of one point, ahead on one of eight tasks, and behind by a hair."""
    tasks = dict.fromkeys(["t", *"abcdefg"], MATH)
    point = [(0.5 + first / 10, 0.1), *[(0.49, 0.1)] * 7]
    anchor = [(0.5, 0.0)] * 8
    return make_front([(point, point)], {"base": anchor}, tasks=tasks)


def test_the_more_merges_are_compared_the_more_one_must_be_ahead() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0.5, 0.03, size=100).tolist()
    merges = [((0.1, i / 100), [(v, 0.03)]) for i, v in enumerate(noise)]
    point: Row = [(0.63, 0.03)]
    anchors = {"base": [(0.5, 0.03)]}
    tasks = {"math": MATH}

    few = make_front([(point, point)], anchors, merges[:2], tasks=tasks)
    many = make_front([(point, point)], anchors, merges, tasks=tasks)

    assert "point 0 dominates base: better on math by 3.1" in about(few, "base")[0]
    assert about(many, "base")[0].startswith(
        "No measured merge dominates base beyond doubt. Nearest to it is the chosen "
    )
    # By 2.1 standard errors some merge of so many is ahead in any search.
    point = [(0.589, 0.03)]
    chance = make_front([(point, point)], anchors, merges, tasks=tasks)
    assert about(chance, "base") == ["No measured merge dominates base."]


def missed(predicted: float, own: float | None = None, **others: Any) -> list[str]:
    """Judge a point at 0.5 ± 0.1 among values of 0 to 1, which are compared in pairs.

    What it does not share with the others has a standard error of ``own``.
    """
    if own is None:
        others = {"differences": {}, **others}
    apart = (own or 0) * math.sqrt(2)
    stderr = [[0.2], [apart, 0.2], [0.2, 0.2, 0.2]]
    front = paired([0.5, 0.0, 0.2, 1.0], stderr, **others)
    content = as_json(front)
    content["points"][0]["predicted"]["math"] = {"value": predicted, "stderr": 0.01}
    return about(from_json(content), "At the chosen point")


AGREED = "predicted and measured agree within 2"


@pytest.mark.parametrize(
    ("predicted", "own", "expected"),
    [
        # 2 * sqrt(0.01² + 0.02²) = 0.0447, though the documents give 0.1.
        (0.544, 0.02, AGREED),
        (0.545, 0.02, "measured as 0.5 ± 0.1, 2.0 standard errors apart: trust"),
        # More than a tenth of the range, but what it errs by itself explains that.
        (0.65, 0.08, AGREED),
        # Without records per item the documents may, but not so much.
        (0.599, None, AGREED),
        (0.601, None, "1.0 standard errors, but 10 % of its range apart: trust"),
    ],
)
def test_agreement_is_judged_by_the_noise_between_merges(
    predicted: float, own: float | None, expected: str
) -> None:
    (line,) = missed(predicted, own)

    assert expected in line


def test_whole_lists_of_verdicts_hold_to_what_they_promise() -> None:
    """All merges and anchors are equal: what is said to dominate does so by chance."""
    rng = np.random.default_rng(1)
    n, false = 150, 0
    for _ in range(n):
        rows = [[(0.5 + e / 10, 0.1) for e in rng.normal(size=2)] for _ in range(25)]
        anchors = {name: rows.pop() for name in ("base", "one", "two", "soup")}
        merges = [((0.7, i / 100), row) for i, row in enumerate(rows[3:])]
        tasks = {"math": MATH, "code": MATH}
        points = [(row, row) for row in rows[:3]]
        front = make_front(points, anchors, merges, tasks=tasks)
        false += any(line.startswith("As measured") for line in verdicts(front))

    # 5 % and two standard errors of what so many searches tell.
    assert false / n <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / n)
