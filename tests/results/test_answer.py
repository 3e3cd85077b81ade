"""The answer of a search, on fronts made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from fronts import (
    ANCHORS,
    APART,
    CHOSEN,
    MATH,
    NOT_MEASURED,
    Row,
    as_json,
    from_json,
    front,
    make_front,
)

from mergekit_map.results.answer import HEADINGS, answer


def test_one_sentence_decides() -> None:
    assert answer(front()).headline == (
        "The merge a=0, b=0.5 keeps 80 % of one's gain on math and 83 % of other's "
        "gain on code; it is better than the soup on code, with no significant "
        "difference on math."
    )


def test_of_many_shares_the_smallest_and_the_largest_are_named() -> None:
    values = (0.2, 0.3, 0.4, 0.5, 0.6)
    tasks = {f"t{i}": MATH for i in range(5)}
    row, base, one = ([(x, 0.001) for x in xs] for xs in (values, [0.1] * 5, [0.5] * 5))
    select = {"prefer": {"t4": 1}}

    found = make_front(
        [(row, row)], {"base": base, "one": one}, tasks=tasks, select=select
    )

    expected = "keeps 25 % (t0) to 125 % (t4) of the best parents' gains"
    assert expected in answer(found).headline


@pytest.mark.parametrize(
    ("measured", "select", "expected"),
    [
        # A gain that noise explains.
        ([(0.56, 0.04), (2.0, 0.05)], {}, "keeps no significant part of one's gain"),
        ([(0.2, 0.04), (1.8, 0.05)], {"index": 0}, "is worse than the base on math;"),
        (CHOSEN, {"require": {"math": "80%"}}, "meets its limit on math."),
        (CHOSEN, {"require": {"math": 0.72}}, "0.02 short of its limit on math, less"),
        (CHOSEN, {"require": {"math": 0.9}}, "b=0.5 misses its limits: math at least"),
        (CHOSEN, {"require": {"math": 1.0}}, "at least 1 (measured 0.7, 0.3 short)"),
    ],
)
def test_what_matters_most_is_in_the_headline(
    measured: Row, select: Any, expected: str
) -> None:
    assert expected in answer(front(measured, select=select)).headline


def test_the_table_compares_by_paired_differences_and_one_word() -> None:
    table = answer(front()).table

    assert [row[1:] for row in table] == [
        ("chosen merge", "0.7000", "80 %", ""),
        ("base", "0.5000", "0 %", "merge better by 0.200 ± 0.057"),
        ("soup", "0.6900", "76 %", "merge better by 0.010 ± 0.057, not significant"),
        ("one", "0.7500", "100 %", "merge worse by 0.050 ± 0.057, not significant"),
        ("chosen merge", "2.000", "83 %", ""),
        ("base", "2.500", "0 %", "merge better by 0.500 ± 0.010"),
        ("soup", "2.200", "50 %", "merge better by 0.200 ± 0.040"),
        ("other", "1.900", "100 %", "merge worse by 0.100 ± 0.030"),
    ]
    assert {len(row) for row in table} == {len(HEADINGS)}
    sample = answer(front()).sample
    assert "(code: 200 blocks of text)" in sample
    assert "holdout" not in sample  # math has no documents to hold out


def test_values_without_noise_are_compared() -> None:
    exact = {**APART, "stderr": [[0.0] * n for n in (1, 2, 3, 4)]}
    noiseless = front(differences={"math": exact, "code": exact})

    assert "is better than the soup on math and code" in answer(noiseless).headline


def test_a_difference_of_unknown_error_is_neither_better_nor_worse() -> None:
    """Such as those of one block of text, or of a function that returns one number."""
    row: Row = [(0.70, None), (2.0, 0.05)]
    anchors = {**ANCHORS, "one": [(0.75, None), (2.4, 0.05)]}

    found = answer(make_front([(row, row)], anchors))

    assert found.table[1][3:] == ("-", "merge better by 0.2, standard error not known")
    assert "keeps 83 % of other's gain on code; it is better than" in found.headline
    soup = [(0.6, None), (2.0, 0.05)]
    found = answer(make_front([(row, row)], {**anchors, "soup": soup}))
    assert found.headline.endswith("on code and no known standard error on math.")


def test_a_prediction_is_named_as_one() -> None:
    found = answer(front(NOT_MEASURED))

    assert found.headline.count("is predicted to ") == 2
    alike = {**ANCHORS, "soup": [(0.69, 0.04), (2.0, 0.05)]}
    other = answer(make_front([(CHOSEN, NOT_MEASURED)], alike))
    assert "must be measured to see whether it is better" in other.headline
    assert found.table[0][2] == "predicted 0.7100"
    assert found.sample.startswith("The values of this merge are predicted")


BETTER: Row = [(0.9, 0.01), (1.5, 0.01)]


@pytest.mark.parametrize(
    ("label", "prefer", "expected"),
    [
        ("one", None, "No merge beats the model one here: use the model one."),
        ("base", None, "No merge beats the base here: keep the base."),
        ("one", {"code": 2.0}, "On code, which alone counts, no merge beats the model"),
    ],
)
def test_where_a_reference_is_as_good_it_is_the_answer(
    label: str, prefer: Any, expected: str
) -> None:
    anchors, select = {**ANCHORS, label: BETTER}, {"scalarization": "sum"}
    select |= {"prefer": prefer} if prefer else {}

    found = answer(make_front([(CHOSEN, CHOSEN)], anchors, select=select))

    assert found.advice == label
    assert found.headline.startswith(expected)


def test_a_merge_that_beats_it_on_one_task_alone_is_not_denied() -> None:
    wins_one_and_loses_more: Row = [(0.95, 0.01), (2.4, 0.01)]
    points = [(CHOSEN, CHOSEN), (wins_one_and_loses_more,) * 2]

    assert answer(make_front(points, {**ANCHORS, "one": BETTER})).headline.startswith(
        "No merge has a significantly larger sum of gains than the"
    )
    wins: Row = [(0.95, 0.01), (1.4, 0.01)]
    front = make_front([(CHOSEN, CHOSEN), (wins,) * 2], {**ANCHORS, "one": BETTER})

    assert ", unlike point 1, is not better than the model" in answer(front).headline


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (0, "The merge a=0, b=0.5 is not better than the model one: use"),
        (1, "The chosen merge is the model one itself: use"),
    ],
)
def test_a_point_that_is_a_reference_has_its_name(index: int, expected: str) -> None:
    points = [(CHOSEN, CHOSEN), (BETTER, BETTER)]
    chosen = {"selected": index, "select": {"index": index}}
    made = as_json(make_front(points, {"one": BETTER})) | chosen
    made["points"][1]["coefficients"] = made["anchors"][0]["coefficients"]

    assert answer(from_json(made)).headline == f"{expected} the model one."


def test_measured_points_that_differ_are_not_within_the_noise_of_predictions() -> None:
    rows = [([(x, 0.3), (2 * x, 0.6)], [(x, None), (2 * x, None)]) for x in (0.3, 0.9)]
    assert not any(
        "less than the noise" in f for f in answer(make_front(rows)).findings
    )


@pytest.mark.parametrize(("items", "advice"), [(2, "base"), (200, "merge")])
def test_a_sum_of_few_blocks_is_weak_evidence(items: int, advice: str) -> None:
    apart = {**APART, "items": items, "stderr": [[0.03] * n for n in (1, 2, 3, 4)]}
    measured = [(0.76, 0.04), (1.85, 0.05)]  # ahead of each reference in the sum

    found = answer(front(measured, differences={"math": apart, "code": apart}))

    assert found.advice == advice


def test_the_chosen_soup_is_not_compared_with_itself() -> None:
    content = as_json(front(select={"require": {"math": 0.9}}))
    content["points"][0] |= {
        key: content["anchors"][-1][key] for key in ("coefficients", "measured")
    }

    headline = answer(from_json(content)).headline

    assert headline.startswith("The soup misses its limits: math at least 0.9")
    assert "from the soup" not in headline


def test_a_task_turned_round_changes_no_gain() -> None:
    plain = front()
    content = as_json(plain)
    content["tasks"]["code"]["direction"] = "maximize"
    for merge in [*content["points"], *content["anchors"]]:
        for kind in ("predicted", "measured"):
            if merge[kind]["code"]["value"] is not None:
                merge[kind]["code"]["value"] *= -1
    turned = answer(from_json(content))

    assert turned.headline == answer(plain).headline
    assert [row[3:] for row in turned.table] == [row[3:] for row in answer(plain).table]


def test_what_changes_a_decision_is_a_finding_and_the_rest_a_detail() -> None:
    border = {"coefficient": "a", "end": 1.0, "beyond": 1.2, "gain": 0.02}
    fit = {"n": 3, "r2": 0.9, "loo_r2": 0.5, "front_error": 0.3}
    tasks = {"math": {**MATH, "fit": fit}}
    points = [([(math, 0.001)],) * 2 for math in (0.6, 0.7)]

    found = answer(make_front(points, tasks=tasks, border=[border]))

    assert [text.split()[0] for text in found.findings] == ["Only", "Predictions"]
    assert found.wider_bounds == ""  # which predictions like these do not know
    assert found.details == ("Chosen before.",)

    fit |= {"n": 9, "loo_r2": 0.97, "front_error": 0.03}
    good = {"math": {**MATH, "fit": fit}}
    for b, wider in ([0, 1], "a=0:1.2"), ([0, 2], "a=0:1.2,b=0:2"):
        more = {"border": [border], "coefficients": {"a": [0, 1], "b": b}}
        found = answer(make_front(points, tasks=good, **more))

        assert "improve the front (hypervolume +2 %): " in found.findings[0]
        assert found.wider_bounds == wider


@pytest.mark.parametrize(
    ("apart", "first"),
    [(0.2, "Predictions on the front"), (0.01, "The points of the front")],
)
def test_what_is_measured_tells_a_poor_fit_from_noise(apart: float, first: str) -> None:
    """The front is within the errors of its predictions, as of a fit that is poor."""
    points = [([(math, 0.2)], [(math, 0.01)]) for math in (0.6, 0.6 + apart)]
    fit = {"n": 9, "r2": 0.9, "loo_r2": 0.8, "front_error": 0.6}
    front = make_front(points, selected=1, tasks={"math": {**MATH, "fit": fit}})

    assert answer(front).findings[0].startswith(first)
