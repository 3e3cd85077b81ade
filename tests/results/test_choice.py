"""The choice among measured merges, and the advice, on fronts made by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from fronts import NOT_MEASURED, Row, make_front

from mergekit_map.results.findings import dominating_merge
from mergekit_map.results.front import Front
from mergekit_map.results.gains import Anchors
from mergekit_map.results.selection import MERGE, advice, choose_measured
from mergekit_map.types import Metric

# Math is better where larger, code where smaller; every merge errs by 0.01 on its own,
# and so by 0.014 beside another one.
BASE: Row = [(0.50, 0.01), (2.50, 0.01)]


def row(math: float, code: float, stderr: float = 0.01) -> Row:
    return [(math, stderr), (code, stderr)]


def chosen(rows: Sequence[Row], soup: Row = BASE, **others: Any) -> Front:
    """Choose among points, each predicted as if it were measured elsewhere."""
    points = [(row(0.5 + i / 100, 2.5), measured) for i, measured in enumerate(rows)]
    anchors = {"base": BASE, "soup": soup, **others.pop("parents", {})}
    return choose_measured(make_front(points, anchors, **others))


@pytest.mark.parametrize(
    ("rows", "index"),
    [
        ([row(0.60, 2.45), row(0.55, 2.30), row(0.51, 2.28)], 1),  # the largest sum
        ([row(0.90, 2.60), row(0.55, 2.45)], 1),  # the first is worse than the base
        ([row(0.90, 2.51), row(0.55, 2.45)], 0),  # which noise explains here
        ([row(0.51, 2.49), row(0.54, 2.515)], 1),  # the first is the base in disguise
        ([row(0.50, 2.60), row(0.40, 2.70)], 0),  # none is allowed: the nearest
        ([row(0.55, 2.45), NOT_MEASURED], 0),  # what is only predicted is not chosen
    ],
)
def test_the_rule_decides(rows: list[Row], index: int) -> None:
    assert chosen(rows).selected == index


def test_a_task_counts_by_what_of_its_gain_is_no_noise() -> None:
    values = {"base": {"math": 0.5}, "one": {"math": 0.7}}
    for noise, share in {0.0: 1, 0.1: 0.75, 0.2: 0, 0.3: 0, math.nan: 1}.items():
        found = Anchors(values, noise={"math": noise})
        assert found.reliability("math", Metric(True, 0, 1)) == pytest.approx(share)


def test_a_task_on_which_no_parent_gains_does_not_count() -> None:
    rows, one = [row(0.6, 2.45), row(0.56, 2.3), row(0.5, 2.46)], row(0.7, 2.49)

    assert chosen(rows, parents={"one": one}).selected == 0  # 2.49 is noise beside 2.5
    assert chosen(rows, parents={"one": one, "two": row(0.4, 2.2)}).selected == 1
    assert chosen(rows, parents={"one": BASE}).selected == 1  # none counts, so all do
    wish = {"prefer": {"math": 1, "code": 1}, "not_worse_than": "base"}
    assert chosen(rows, parents={"one": one}, select=wish).selected == 1


def test_a_point_that_an_allowed_merge_dominates_is_left_out() -> None:
    code = {"prefer": {"code": 1}, "not_worse_than": "base"}
    # The second is far better on math, and worse on code by no more than noise.
    assert chosen([row(0.60, 2.51), row(0.70, 2.52)], select=code).selected == 1
    # Now it is significantly worse than the base on code.
    assert chosen([row(0.60, 2.51), row(0.70, 2.53)], select=code).selected == 0


def test_a_merge_that_is_said_to_be_better_is_the_choice() -> None:
    """By two standard errors of the difference, and not by 1.8."""
    rows = [row(0.50, 2.50), row(0.49, 2.30), row(0.475, 2.20), row(0.46, 2.10)]

    front = chosen(rows)

    assert front.selected == 2
    assert (advice(front), dominating_merge(front)) == (MERGE, None)


def test_a_merge_outside_the_limits_is_not_said_to_be_better() -> None:
    # Better than the first point on math, and worse than the base on code.
    rows = [row(0.60, 2.515), row(0.70, 2.53)]

    assert dominating_merge(chosen(rows)) is None
    by_index = chosen(rows, select={"index": 0})
    assert dominating_merge(by_index) is not None
    # No parent gains on math, which counts all the same where a point is asked for.
    two = {"two": row(0.4, 2.2)}
    front = chosen([row(0.9, 2.6)], parents=two, select={"index": 0})
    assert advice(front) == MERGE


def test_preferences_and_limits_hold_for_measured_values() -> None:
    rows = [row(0.60, 2.45), row(0.55, 2.30), row(0.51, 2.25)]

    def selected(**select: Any) -> int:
        return chosen(rows, select=select).selected

    assert selected(prefer={"math": 1}) == 0
    assert selected(prefer={"code": 1}) == 2
    assert selected(require={"math": 0.60}) == 0
    # Missed by 0.71 standard errors of the difference from the base: by noise.
    assert selected(require={"math": 0.56}, prefer={"code": 1}) == 1
    assert selected(index=0) == 0


def test_a_merge_that_misses_a_limit_is_not_said_to_be_no_better() -> None:
    one = {"one": row(0.70, 2.90)}
    front = chosen([row(0.60, 2.30)], parents=one, select={"require": {"math": 0.65}})

    assert advice(front) == MERGE  # which is far better on code


@pytest.mark.parametrize(
    ("measured", "soup", "label"),
    [
        (row(0.60, 2.40), row(0.52, 2.45), MERGE),
        (row(0.60, 2.40), row(0.61, 2.39), "soup"),
        (row(0.60, 2.40), row(0.58, 2.41), "soup"),  # nothing that noise does not do
        (row(0.60, 2.40), row(0.58, 2.60), MERGE),  # which is worse than the base
        (row(0.60, 2.40), row(0.60, 2.40), "soup"),  # it is the soup
        (row(0.51, 2.48), row(0.40, 2.60), "base"),
        (row(0.51, 2.48), row(0.52, 2.48), "base"),  # nor is the soup better
        (row(0.60, 2.60), row(0.40, 2.60), "base"),  # no point is allowed
        (NOT_MEASURED, row(0.90, 2.0), MERGE),
    ],
)
def test_the_advice_is_what_no_merge_beats(
    measured: Row, soup: Row, label: str
) -> None:
    assert advice(chosen([measured], soup)) == label
