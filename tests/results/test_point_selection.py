"""Choosing a point: limits in the tasks' own units and direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ConfigError, DesignError
from mergekit_map.results.gains import Anchors
from mergekit_map.results.limits import find_limits
from mergekit_map.results.selection import choose
from mergekit_map.types import SIGNIFICANT, Metric

TASKS = {
    "math": Metric(higher_is_better=True, lower=0, upper=1),
    "code": Metric(higher_is_better=False, lower=0, upper=None, unit="nats/token"),
    "text": Metric(higher_is_better=True, lower=0, upper=1),
}
# From the best math to the best code; text is best between them.
VALUES = np.array(
    [[0.70, 2.8, 0.3], [0.65, 2.4, 0.5], [0.60, 2.2, 0.6], [0.50, 2.1, 0.4]]
)
UTILITIES = VALUES * [1, -1, 1]
VALUES_OF = {
    "base": {"math": 0.22, "code": 4.9, "text": 0.4},  # neither is a single model
    "mathematician": {"math": 0.72, "code": 3.0},
    "coder": {"math": 0.30, "code": 1.9},
    "soup": {"math": 0.99, "code": 0.1, "text": 0.99},
}
ANCHORS = Anchors(VALUES_OF)


def chosen(**options: Any) -> int:
    return choose(SelectSpec(**options), TASKS, UTILITIES, ANCHORS)


def test_answers_may_be_worse_by_noise_before_they_are_compared() -> None:
    anchors = Anchors(VALUES_OF, noise={"math": 0.02, "code": 0.02})

    limits = find_limits(SelectSpec(not_worse_than="base"), TASKS, anchors)

    assert limits["math"].value == pytest.approx(0.22 - SIGNIFICANT * 0.02)
    assert limits["code"].value == 4.9


@pytest.mark.parametrize(
    ("options", "index"),
    [
        ({}, 2),
        ({"prefer": {"math": 1}}, 0),
        ({"prefer": {"code": 1}, "scalarization": "achievement"}, 3),
        ({"index": 3}, 3),
        ({"knee": True}, 2),
        # At least where larger is better, at most where smaller is.
        ({"require": {"math": 0.6, "text": 0.35}}, 2),  # the best code
        ({"require": {"code": 2.4, "text": 0.45}}, 1),  # the best math
        ({"require": {"code": 2.15}}, 3),
        ({"require": {"math": 0.55}, "prefer": {"code": 1}}, 2),
        ({"require": {"math": 0.62}, "knee": True}, 1),
        ({"require": {"math": 0.65, "code": 2.4}}, 1),  # which lies on both
        ({"require": {"math": 0.1, "code": 9, "text": 0.1}}, 2),  # all are named: as {}
    ],
)
def test_the_options_decide(options: dict[str, Any], index: int) -> None:
    assert chosen(**options) == index


def limits_of(anchors: Anchors = ANCHORS, **select: Any) -> dict[str, float]:
    found = find_limits(SelectSpec(**select), TASKS, anchors)
    return {task: limit.value for task, limit in found.items()}


def test_a_share_is_of_the_best_single_models_gain_over_the_base() -> None:
    limits = limits_of(require={"math": "80%", "code": "90%"})

    assert limits == pytest.approx(
        {"math": 0.22 + 0.8 * (0.72 - 0.22), "code": 4.9 - 0.9 * (4.9 - 1.9)}
    )
    assert chosen(require={"math": "75%"}, prefer={"code": 1}) == 2
    assert chosen(require={"math": "80%"}, prefer={"code": 1}) == 1


@pytest.mark.parametrize("share", ["20%", "50%", "95%", "120%"])
def test_the_zero_of_the_units_does_not_matter(share: str) -> None:
    moved = Anchors(
        {
            label: {task: value - 7 for task, value in readings.items()}
            for label, readings in VALUES_OF.items()
        }
    )
    require = {"math": share, "code": share}

    before, after = limits_of(require=require), limits_of(moved, require=require)

    assert after == pytest.approx({task: value - 7 for task, value in before.items()})


@pytest.mark.parametrize(("task", "best"), [("math", 0.2), ("code", 5.0)])
def test_a_share_of_no_gain_is_refused(task: str, best: float) -> None:
    anchors = Anchors({**VALUES_OF, "mathematician": {task: best}, "coder": {}})

    with pytest.raises(ConfigError, match=r"no single model is better .*or not-wo"):
        limits_of(anchors, require={task: "95%"})


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (
            VALUES_OF,
            {"require": {"text": "95%"}},
            r"single model's gain on text .*no single model was measu",
        ),
        (
            {label: VALUES_OF[label] for label in ("coder", "soup")},
            {"require": {"math": "95%"}},
            "no base was measured on it; give the limit",
        ),
        (VALUES_OF, {"not_worse_than": "bas"}, "no 'bas' .*did you mean 'base'"),
        (VALUES_OF, {"not_worse_than": "coder"}, "coder was not measured on text; gi"),
    ],
)
def test_a_limit_of_what_nobody_knows_is_refused(
    values: dict[str, dict[str, float]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        limits_of(Anchors(values), **options)


def test_not_worse_than_a_rival_is_what_it_measured_on_every_task() -> None:
    assert limits_of(not_worse_than="base") == VALUES_OF["base"]
    # The last point has 0.4 of text, as the base has: that is not worse.
    assert chosen(not_worse_than="base", prefer={"code": 1}) == 3
    assert chosen(not_worse_than=["base"], prefer={"math": 1}) == 1


def test_a_limit_of_a_rival_allows_for_two_standard_errors_of_the_difference() -> None:
    anchors = Anchors(VALUES_OF, {"base": {"math": 0.01, "code": 0.1, "text": np.nan}})

    wanted = {"math": 0.22 - 0.02, "code": 4.9 + 0.2, "text": 0.4}
    assert limits_of(anchors, not_worse_than="base") == pytest.approx(wanted)


def test_limits_that_nothing_keeps_are_come_near_to() -> None:
    assert chosen(require={"math": 0.8}) == 0
    assert chosen(require={"math": 0.65, "code": 2.2}) == 2


def test_a_point_that_is_not_there_is_refused() -> None:
    with pytest.raises(DesignError, match="the points 0 to 3, not 4; choose one of"):
        chosen(index=4)


def test_a_limit_beyond_what_a_metric_can_be_is_told_from_a_share() -> None:
    with pytest.raises(ConfigError, match=r"math is 1 at most.* 95; did you mean 95%"):
        limits_of(require={"math": 95})
    with pytest.raises(ConfigError, match=r"code is 0 at least.* keeps -0.1$"):
        limits_of(require={"code": -0.1})
    assert limits_of(require={"math": 1, "code": 0}) == {"math": 1, "code": 0}


def test_a_limit_that_all_models_keep_by_far_is_told_from_a_share() -> None:
    with pytest.raises(
        ConfigError, match=r"code=95 by far.* 0\.1 to 4\.9; .* 95%, a sh"
    ):
        limits_of(require={"code": 95})
    assert limits_of(require={"code": 9}) == {"code": 9}
