"""The choice of a merge by preferences, limits and measurements; what is beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fakes import line
from fronts import MATH, NOT_MEASURED, Row, make_front

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ConfigError, DesignError
from mergekit_map.results.answer import poor_tasks, prediction_quality
from mergekit_map.results.front import Ending, Front
from mergekit_map.results.limits import Anchors, Request, excess, unmet_limits
from mergekit_map.results.paired import Differences, stderrs_of_differences
from mergekit_map.results.selection import (
    MERGE,
    advice,
    choose,
    choose_measured,
    choose_point,
    chosen_as,
)
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


THREE = [row(0.6, 2.45), row(0.56, 2.3), row(0.5, 2.46)]
NOISE = [row(0.6, 2.5), row(0.598, 2.482), row(0.59, 2.48)]
APART = [row(0.60, 2.45), row(0.55, 2.30), row(0.51, 2.25)]
# Each is far better on code than the one before, and worse on math by little.
CHAIN = [row(0.60 - 0.027 * i, 2.50 - 0.3 * i**0.5) for i in range(5)]
STEPS = [row(0.60 - 0.01 * i, 2.50 - 0.05 * i) for i in range(8)]
ENDS = {"one": row(0.6, 2.5), "two": row(0.45, 1.8)}
ONE, TWO = {"one": row(0.7, 2.49)}, {"two": row(0.4, 2.2)}
EVEN = {"prefer": {"math": 1, "code": 1}, "not_worse_than": "base"}
CODE = {"prefer": {"code": 1}, "not_worse_than": "base"}
# The soup is as good as the merge in the middle, and beaten by the ends on one task.
MIDDLE = [row(0.55, 2.20), row(0.745, 2.255), row(0.80, 2.45)]
SOUP = {"soup": row(0.735, 2.265), "parents": ENDS}


@pytest.mark.parametrize(
    ("rows", "others", "index"),
    [
        (APART, {}, 1),  # the largest sum
        ([row(0.90, 2.60), row(0.55, 2.45)], {}, 1),  # the first is worse than the base
        ([row(0.90, 2.51), row(0.55, 2.45)], {}, 0),  # which noise explains here
        ([row(0.51, 2.49), row(0.54, 2.515)], {}, 1),  # the first is the base
        ([row(0.50, 2.60), row(0.40, 2.70)], {}, 0),  # none is allowed: the nearest
        ([row(0.55, 2.45), NOT_MEASURED], {}, 0),  # no prediction is chosen
        # A task counts if parents or merges gain more than noise on it.
        (NOISE, {"parents": ONE}, 0),
        (NOISE, {"parents": ONE | TWO}, 1),
        (THREE, {"parents": ONE}, 1),
        (THREE, {"parents": {"one": BASE}}, 1),  # none counts, so all do
        (THREE, {"parents": ONE, "select": EVEN}, 1),
        # Far better on math, and worse on code by no more than noise, or by more.
        ([row(0.60, 2.51), row(0.70, 2.52)], {"select": CODE}, 1),
        ([row(0.60, 2.51), row(0.70, 2.53)], {"select": CODE}, 0),
        # Noise does not lead from merge to merge to an extreme.
        (CHAIN, {"parents": ENDS}, 1),
        (STEPS, {"select": {"prefer": {"math": 1}}}, 1),
        # Behind by 0.7 standard errors of the difference, not by 1.4.
        ([row(0.5, 2.5), row(0.49, 2.3), row(0.47, 2.2), row(0.45, 2.1)], {}, 1),
        (APART, {"select": {"prefer": {"math": 1}}}, 0),
        (APART, {"select": {"prefer": {"code": 1}}}, 2),
        (APART, {"select": {"require": {"math": 0.60}}}, 0),
        (MIDDLE, SOUP, 0),
        (MIDDLE, SOUP | {"select": {"knee": True}}, 1),
        (MIDDLE, SOUP | {"select": {"scalarization": "achievement"}}, 1),
        (MIDDLE, SOUP | {"select": {"prefer": {"math": 1, "code": 1}}}, 1),
        # Missed by 0.71 standard errors of the difference from the base: by noise.
        (APART[1:], {"select": {"require": {"math": 0.56}, "prefer": {"code": 1}}}, 0),
        # One that meets it comes first, though it gains less.
        (APART, {"select": {"require": {"math": 0.56}, "prefer": {"code": 1}}}, 0),
    ],
)
def test_the_rule_decides(rows: list[Row], others: dict[str, Any], index: int) -> None:
    assert chosen(rows, **others).selected == index


def test_without_standard_errors_the_nearest_is_so_by_the_range_of_each_task() -> None:
    rows = [row(math, 2.5, float("nan")) for math in (0.2, 0.78, 0.7)]

    front = chosen(rows, select={"require": {"math": 0.9}})

    assert front.selected == 1
    assert "is the nearest to its limits" in front.reason
    worse = chosen([row(0.4, 2.6), row(0.45, 2.51)])
    assert "Every measured merge is worse than the base" in worse.reason


def test_a_task_counts_by_what_of_its_gain_is_no_noise() -> None:
    values = {"base": {"math": 0.5}, "one": {"math": 0.7}}
    for noise, share in {0.0: 1, 0.1: 0.75, 0.2: 0, 0.3: 0, math.nan: 1}.items():
        found = Anchors(values, noise={"math": noise})
        assert found.reliability("math", Metric(True, 0, 1)) == pytest.approx(share)


def test_an_accuracy_of_0_has_the_noise_of_others() -> None:
    log = [line({"x": x}, "math", x / 20, stderr=x / 20) for x in (0.0, 1.0)]
    parts = [({"base": {"x": 0.0}}, log), ({"one": {"x": 1.0}}, log)]
    assert Anchors.measured(*parts).noise == {"math": 0.05}


def test_a_merge_that_is_worse_than_the_base_is_no_reason_to_keep_the_base() -> None:
    limit = {"not_worse_than": "base"}
    both = chosen([row(0.90, 2.60), row(0.55, 2.45)], select=limit)

    assert advice(chosen([row(0.90, 2.60)], select=limit)) == "base"
    assert advice(chosen_as(both, 0, SelectSpec(**limit))) == MERGE
    # Nor is one that misses a limit no better: it is, on code.
    parents, require = {"one": row(0.70, 2.90)}, {"require": {"math": 0.65}}
    assert advice(chosen([row(0.60, 2.30)], parents=parents, select=require)) == MERGE
    # A task without a gain counts where a point is asked for.
    assert advice(chosen([row(0.9, 2.6)], parents=TWO, select={"index": 0})) == MERGE


def test_what_was_measured_to_miss_a_limit_is_not_chosen_again() -> None:
    points = [(row(0.70, 2.30), row(0.50, 2.30)), (row(0.65, 2.40), NOT_MEASURED)]
    limit = SelectSpec(require={"math": 0.6})

    assert choose_point(make_front(points, {"base": BASE}), limit).selected == 1
    with pytest.raises(DesignError, match=r"math at least 0.6 \(measured 0.5, "):
        choose_point(make_front(points[:1], {"base": BASE}), limit)


def test_a_merge_that_failed_is_not_chosen() -> None:
    front = make_front(
        [(row(0.70, 2.30), NOT_MEASURED), (row(0.6, 2.4), row(0.6, 2.4))]
    )
    failed = front.points[0].model_copy(update={"foretold": front.points[0].predicted})
    known = front.model_copy(update={"points": (failed, front.points[1])})

    assert choose_point(front, SelectSpec()).selected == 0
    assert choose_point(known, SelectSpec()).selected == 1
    with pytest.raises(DesignError, match="failed when it was measured"):
        choose_point(known, SelectSpec(require={"math": 0.65}))


def test_what_is_missed_is_told_as_it_was_judged() -> None:
    """By the difference from the rival, and not by a limit that allows for noise."""
    far, near = row(0.6, 2.49), row(0.56, 2.53)
    select = {"select": {"not_worse_than": "base"}}
    front = make_front([(far, far), (near, near)], {"base": BASE}, **select)
    missed = (
        "code not worse than base (measured 2.53, worse by over two standard errors)"
    )

    assert unmet_limits(chosen_as(front, 0, front.select)) == ""
    found = chosen_as(front, 1, front.select)
    assert unmet_limits(found) == missed
    assert found.reason.startswith(f"The merge (point 1) does not keep {missed}; relax")


def test_a_merge_far_from_a_rival_is_not_excused_by_the_noise_between_them() -> None:
    points = [(row(0.6, 2.3), row(0.6, 2.3))] * 2
    known = {"merges": [0, 1, 2], "items": 100, "stderr": [[0.03], [0.02, 0.002]]}
    front = make_front(points, {"base": BASE}, differences={"code": known})
    assert Anchors.of(front).errors["base"]["code"] == 0.002


@pytest.mark.parametrize("share", [0.3, 1.0, 1.2])
def test_noise_beside_a_share_is_that_of_the_items(share: float) -> None:
    """The limit is a mean of base and parent, item by item."""
    U = np.random.default_rng(0).normal(size=(3, 50))
    U -= U.mean(axis=1, keepdims=True)  # of the merge, the base and the parent
    stderr = stderrs_of_differences(U, np.zeros(50))
    known = Differences.of(range(3), stderr, 50, answers=False).model_dump()
    front = make_front(
        [(row(0.6, 2.3), row(0.6, (2.5 - share * 0.3) + 0.01))],
        {"base": BASE, "two": row(0.4, 2.2)},
        differences={"code": known},
        select={"require": {"code": f"{100 * share:g}%"}},
    )

    beside = U[0] - (1 - share) * U[1] - share * U[2]
    noise = math.sqrt(np.square(beside).sum() * 50 / 49)
    assert excess(front, np.array([0]))[0, 1] == pytest.approx(0.01 / noise - 1, 1e-4)


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
def test_the_advice_is_what_nothing_beats(measured: Row, soup: Row, label: str) -> None:
    assert advice(chosen([measured], soup)) == label


@pytest.mark.parametrize(
    ("fit", "reliable", "poor"),
    [
        ({"loo_r2": 0.93, "front_error": 0.1}, True, []),
        ({"loo_r2": 0.4, "expected_r2": 0.89, "front_error": 0.1}, True, ["math"]),
        ({"loo_r2": 0.99, "front_error": 0.11}, False, []),
        ({"loo_r2": 0.4, "expected_r2": 0.74, "front_error": 0.05}, False, ["math"]),
        ({"loo_r2": 0.4, "expected_r2": 0.93}, True, []),
        ({"loo_r2": None, "expected_r2": 0.89}, False, ["math"]),
        ({"loo_r2": None}, False, ["math"]),
    ],
)
def test_predictions_are_reliable_where_they_are_good_on_the_front(
    fit: dict[str, float | None], reliable: bool, poor: list[str]
) -> None:
    row = [(0.5, 0.01)]
    tasks = {"math": {**MATH, "fit": {"n": 9, "r2": 0.9, "loo_r2": 0.95, **fit}}}

    front = make_front([(row, row)], tasks=tasks)

    found = prediction_quality(front)
    assert (found is None or not found[1]) == reliable
    assert poor_tasks(front) == poor
    for n, end in ((9, "trust measured merges."), (64, "more than 64 evaluations.")):
        ending = Ending(evaluations=n, allowed=20, trusted=n < 20, hope=0)
        ended = prediction_quality(front.model_copy(update={"ending": ending}))
        assert reliable or ended[0].endswith(end)


TASKS = {
    "math": Metric(higher_is_better=True, lower=0, upper=1),
    "code": Metric(higher_is_better=False, lower=0, upper=None, unit="nats/token"),
    "text": Metric(higher_is_better=True, lower=0, upper=1),
}
# From the best math to the best code; text is best between them.
UTILITIES = np.array(
    [[0.70, -2.8, 0.3], [0.65, -2.4, 0.5], [0.60, -2.2, 0.6], [0.50, -2.1, 0.4]]
)
VALUES_OF = {
    "base": {"math": 0.22, "code": 4.9, "text": 0.4},  # neither is a single model
    "mathematician": {"math": 0.72, "code": 3.0},
    "coder": {"math": 0.30, "code": 1.9},
    "soup": {"math": 0.99, "code": 0.1, "text": 0.99},
}
ANCHORS = Anchors(VALUES_OF)


def chosen_by(**options: Any) -> int:
    return choose(Request(SelectSpec(**options), TASKS, ANCHORS), UTILITIES)


@pytest.mark.parametrize(
    ("options", "index"),
    [
        ({"prefer": {"math": 1}}, 0),
        # At least where larger is better, at most where smaller is.
        ({"require": {"math": 0.6, "text": 0.35}}, 2),  # the best code
        ({"require": {"code": 2.4, "text": 0.45}}, 1),  # the best math
        ({"require": {"math": 0.65, "code": 2.4}}, 1),  # which lies on both
        ({"require": {"math": 0.1, "code": 9, "text": 0.1}}, 2),  # all are named: as {}
    ],
)
def test_the_options_decide(options: dict[str, Any], index: int) -> None:
    assert chosen_by(**options) == index


def limits_of(anchors: Anchors = ANCHORS, **select: Any) -> dict[str, float]:
    found = Request(SelectSpec(**select), TASKS, anchors).limits()
    return {task: limit.value for task, limit in found.items()}


def test_a_share_is_of_the_best_single_models_gain_over_the_base() -> None:
    wanted = {"math": 0.22 + 0.8 * (0.72 - 0.22), "code": 4.9 - 0.9 * (4.9 - 1.9)}

    assert limits_of(require={"math": "80%", "code": "90%"}) == pytest.approx(wanted)
    assert chosen_by(require={"math": "75%"}, prefer={"code": 1}) == 2
    assert chosen_by(require={"math": "80%"}, prefer={"code": 1}) == 1


NO_GAIN = {"base": {"math": 0.22}, "one": {"math": 0.2}}


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (NO_GAIN, {"require": {"math": "95%"}}, "no parent .* on math.*or not-worse"),
        (VALUES_OF, {"require": {"text": "95%"}}, "no parent .* the base on text"),
        ({"one": {"math": 1}}, {"require": {"math": "95%"}}, "no parent .* the base"),
        (VALUES_OF, {"not_worse_than": "bas"}, "no 'bas' .*did you mean 'base'"),
        (VALUES_OF, {"not_worse_than": "coder"}, "coder was not measured on text; gi"),
    ],
)
def test_a_limit_of_what_nobody_knows_is_refused(
    values: dict[str, dict[str, float]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        limits_of(Anchors(values), **options)


@pytest.mark.parametrize(
    ("task", "who"), [("math", "no model"), ("code", "every model")]
)
def test_a_number_that_was_meant_as_a_share_is_refused(task: str, who: str) -> None:
    with pytest.raises(ConfigError, match=f"{who}.* {task}=95; did you mean 95%"):
        limits_of(require={task: 95})
    for possible in ({"math": 1, "code": 0}, {"code": 9}):
        assert limits_of(require=possible) == possible
    losses = Anchors({"base": {"code": 4.9}, "coder": {"code": 4.4}})
    with pytest.raises(ConfigError, match=r"no model .* code=0\.95; did you mean 95%"):
        limits_of(losses, require={"code": 0.95})
    brier = Anchors({"base": {"code": 0.27}, "coder": {"code": 0.25}})
    assert limits_of(brier, require={"code": 0.2}) == {"code": 0.2}


def test_not_worse_than_a_rival_is_what_it_measured_on_every_task() -> None:
    assert limits_of(not_worse_than="base") == VALUES_OF["base"]
    # The last point has 0.4 of text, as the base has: that is not worse.
    assert chosen_by(not_worse_than="base", prefer={"code": 1}) == 3
    assert chosen_by(not_worse_than=["base"], prefer={"math": 1}) == 1


def test_a_limit_of_a_rival_allows_for_two_standard_errors_of_the_difference() -> None:
    # Before they are compared in pairs, answers may be worse by their noise.
    noise = {"text": 0.02, "code": 0.02}
    anchors = Anchors(VALUES_OF, {"base": {"math": 0.01, "code": 0.1}}, noise)

    wanted = {"math": 0.22 - 0.02, "code": 4.9 + 0.2, "text": 0.4 - 0.04}
    assert limits_of(anchors, not_worse_than="base") == pytest.approx(wanted)
