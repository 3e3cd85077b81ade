"""What a search chooses, and writes, where its front points are not what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from fakes import make_study, run

from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.front import Front
from mergekit_map.results.limits import unmet_limits
from mergekit_map.results.records import read_record
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement

NAMES = "abcd"


def own_corner(c: Mapping[str, float], task: str) -> Measurement:
    """Squared distance to the single model of the task: all tasks trade off."""
    return Measurement(sum((c[n] - (n == task)) ** 2 for n in c), None, 10)


def searched(select: SelectSpec, path: Path, names: str = "abc") -> Front:
    study = make_study(names, names, list(names), select=select, remeasure=0)
    run(study, path, own_corner)
    return read_record(path / "front.json", Front, "front")


def test_limits_that_only_a_merge_between_the_points_keeps_are_kept(
    tmp_path: Path,
) -> None:
    # All weights alike give every task (1 - w)^2 + 3 w^2, at best 0.75.
    limits = dict.fromkeys(NAMES, 0.75 * 1.001)

    front = searched(SelectSpec(require=limits), tmp_path, NAMES)

    others = front.utilities(front.points[:-1], "predicted")
    assert not (others >= -0.75 * 1.001).all(axis=1).any()
    assert front.selected == len(front.points) - 1
    chosen = front.chosen
    assert list(chosen.coefficients.values()) == pytest.approx([1 / 4] * 4, abs=0.02)
    assert chosen.is_measured(*NAMES)
    assert chosen.recipe == f"recipes/{front.selected:03d}.yml"
    assert unmet_limits(front) == ""


def test_a_limit_that_nothing_keeps_ends_a_search_all_the_same(tmp_path: Path) -> None:
    # The best of all three alike is 2 / 3 at 1 / 3.
    front = searched(SelectSpec(require=dict.fromkeys("abc", 0.6)), tmp_path)

    assert front.chosen.is_measured(*"abc")
    missed = np.array([r.value for r in front.chosen.readings("predicted").values()])
    assert (missed - 0.6).clip(0).sum() == pytest.approx(0.2, abs=1e-3)
    assert front.reason.startswith(f"Point {front.selected}: ")
    assert "the nearest to its limits that was found" in front.reason
    assert front.reason.endswith("relax a limit, or allow more evaluations.")
    assert "at most 0.6 (measured " in unmet_limits(front)


def test_the_points_before_are_those_of_any_other_choice(tmp_path: Path) -> None:
    plain = searched(SelectSpec(index=0), tmp_path / "plain")

    wished = searched(SelectSpec(prefer={"a": 3, "b": 2, "c": 1}), tmp_path / "wished")

    before = [point.coefficients for point in plain.points]
    assert [p.coefficients for p in wished.points[: len(before)]] == before
    assert wished.selected == len(before) == len(wished.points) - 1
    # Their ranges are alike, so the best is the weighted centre.
    weights = list(wished.chosen.coefficients.values())
    assert weights == pytest.approx([3 / 6, 2 / 6, 1 / 6], abs=1e-2)


def with_base(select: SelectSpec) -> Study:
    return make_study("abc", "abc", ("base", *"abc"), select=select, remeasure=0)


def test_a_search_ends_no_worse_than_the_base_anywhere(tmp_path: Path) -> None:
    # The base has a loss of 1 everywhere; a alone one of 2 on the tasks of the others.
    free = with_base(SelectSpec(prefer={"a": 1}))
    bound = with_base(SelectSpec(prefer={"a": 1}, not_worse_than="base"))

    run(free, tmp_path / "free", own_corner)
    run(bound, tmp_path / "bound", own_corner)

    fronts = [
        read_record(tmp_path / name / "front.json", Front, "front")
        for name in ("free", "bound")
    ]
    assert fronts[0].chosen.measured["b"].value == pytest.approx(2, abs=0.02)
    losses = {t: r.value or 0 for t, r in fronts[1].chosen.measured.items()}
    assert losses["b"] <= 1 + 1e-6
    assert losses["c"] <= 1 + 1e-6
    # With b and c at w, a may be as large as (2 w - 2 w^2)^(1/2): at most at w = 1/2.
    assert losses["a"] == pytest.approx(min_loss_of_a(), abs=0.002)
    assert fronts[1].reason.endswith(": the best on a, not worse than base.")
    assert unmet_limits(fronts[1]) == ""


def min_loss_of_a() -> float:
    w = np.linspace(0, 0.5, 100_001)
    a = np.sqrt(2 * w - 2 * w**2)
    return float(((1 - a) ** 2 + 2 * w**2).min())
