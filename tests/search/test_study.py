"""The study on metrics whose front is known, with no model anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import (
    IDEAL,
    LOSS,
    Recorder,
    bowls,
    changed,
    front_of,
    line,
    logged,
    make_study,
    run,
)
from quick_fronts import fronts_of_few_points

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.results.front import Front
from mergekit_map.results.limits import unmet_limits
from mergekit_map.results.log import open_log
from mergekit_map.search.finish import find_partial_front
from mergekit_map.search.loop import run_study
from mergekit_map.search.study import Study, StudyResult
from mergekit_map.types import Measurement, Metric


@pytest.fixture
def study() -> Study:
    return make_study(
        "ab",
        list(IDEAL),
        ("base", "a"),
        evaluations=10,
        remeasure=3,
        surrogate="quadratic",
        refine=False,
    )


@pytest.mark.whole_front
def test_finds_the_front_between_two_bowls(study: Study, tmp_path: Path) -> None:
    alike = SelectSpec(prefer=dict.fromkeys(IDEAL, 1))  # "b" alone is not measured
    result = run(replace(study, select=alike), tmp_path, Recorder(bowls))

    front = np.array([list(c.values()) for c in result.front])
    chosen = front[result.selected]
    # Beside merges of the design that no other measured one dominates.
    front = front[non_dominated(study.predict(result.surrogates, front))]
    start, end = np.array(IDEAL["near_a"]), np.array(IDEAL["near_b"])
    along = (front - start) @ (end - start) / np.sum((end - start) ** 2)
    np.testing.assert_allclose(front, start + along[:, None] * (end - start), atol=5e-3)
    assert along.min() < 0.02
    assert along.max() > 0.98
    # Both tasks count the same, and are mirror images of one another.
    assert (start + end) / 2 == pytest.approx(chosen, abs=0.1)


def test_stops_when_the_first_merge_cannot_be_measured(
    study: Study, tmp_path: Path
) -> None:
    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        if task == "near_b":
            raise RuntimeError(f"no {task} at {len(coefficients)}")
        return bowls(coefficients, task)

    with pytest.raises(EvaluationError, match=r"'near_b' cannot be .*no near_b"):
        run(study, tmp_path, evaluate)
    assert len(logged(tmp_path)) <= 2


def test_anchors_outside_the_box_are_measured_but_not_fitted(
    study: Study, tmp_path: Path
) -> None:
    inner = replace(study, bounds={"a": (0.2, 1.0), "b": (0.1, 1.0)})

    result = run(inner, tmp_path, Recorder(bowls))

    n_front = sum(e.role == "front" for e in logged(tmp_path)) // 2
    assert {s.quality.n for s in result.surrogates.values()} == {10 - 2 + n_front}
    front = np.array([list(c.values()) for c in result.front])
    assert np.all(front >= [0.2, 0.1])


def test_a_measurement_counts_by_its_standard_error(study: Study) -> None:
    places = np.random.default_rng(0).uniform(size=(12, 2))
    truth = [bowls(study.named(x), "near_a").value for x in places]

    def missed(first: float | None, last: float) -> float:
        """Fit, with the last measurement 2 off, and say how far off predictions are."""
        values, stderrs = [*truth[:-1], truth[-1] + 2], [first, *[0.001] * 10, last]
        evaluations = [
            line(study.named(x), task, value, stderr=stderr, n=10)
            for x, value, stderr in zip(places, values, stderrs, strict=True)
            for task in study.tasks
        ]
        surrogate = study.fit(evaluations)["near_a"]
        return float(np.abs(surrogate.predict(places[:-1]) - truth[:-1]).mean())

    assert missed(0.001, 2.0) < missed(0.001, 0.001) / 2
    # One that is unknown is taken to be like the others.
    assert missed(None, 2.0) == pytest.approx(missed(0.001, 2.0))


def own_corner(c: Mapping[str, float], task: str) -> Measurement:
    """Squared distance to the single model of the task: all tasks trade off."""
    return Measurement(sum((c[n] - (n == task)) ** 2 for n in c), None, 10)


def searched(
    select: SelectSpec, path: Path, names: str = "abc", anchors: Sequence[str] = ()
) -> Front:
    anchors = anchors or list(names)
    search = {"evaluations": 5 * len(names), "remeasure": 0}
    run(make_study(names, names, anchors, select=select, **search), path, own_corner)
    return front_of(path)


def test_limits_that_only_a_merge_between_the_points_keeps_are_kept(
    tmp_path: Path,
) -> None:
    # All weights alike give every task (1 - w)^2 + 3 w^2, at best 0.75.
    limits = dict.fromkeys("abcd", 0.75 * 1.001)

    front = searched(SelectSpec(require=limits), tmp_path, "abcd")

    others = front.utilities(front.points[:-1], "predicted")
    assert not (others >= -0.75 * 1.001).all(axis=1).any()
    assert front.selected == len(front.points) - 1
    chosen = front.chosen
    assert list(chosen.coefficients.values()) == pytest.approx([1 / 4] * 4, abs=0.02)
    assert chosen.is_measured(*"abcd")
    assert unmet_limits(front) == ""


def test_a_limit_that_nothing_keeps_ends_a_search_all_the_same(tmp_path: Path) -> None:
    # The best of all three alike is 2 / 3 at 1 / 3.
    front = searched(SelectSpec(require=dict.fromkeys("abc", 0.6)), tmp_path)

    assert front.chosen.is_measured(*"abc")
    missed = np.array([r.value for r in front.chosen.readings("predicted").values()])
    assert (missed - 0.6).clip(0).sum() == pytest.approx(0.2, abs=1e-3)
    assert "the nearest to its limits that was found" in front.reason
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


def test_a_search_ends_no_worse_than_the_base_anywhere(tmp_path: Path) -> None:
    # The base has a loss of 1 everywhere; a alone one of 2 on the tasks of the others.
    base = ("base", *"abc")
    free, bound = (
        searched(SelectSpec(prefer={"a": 1}, **more), tmp_path / name, anchors=base)
        for name, more in (("free", {}), ("bound", {"not_worse_than": "base"}))
    )

    assert free.chosen.measured["b"].value == pytest.approx(2, abs=0.02)
    losses = {t: r.value or 0 for t, r in bound.chosen.measured.items()}
    assert losses["b"] <= 1 + 1e-6
    assert losses["c"] <= 1 + 1e-6
    # With b and c at w, a may be as large as (2 w - 2 w^2)^(1/2): at most at w = 1/2.
    assert losses["a"] == pytest.approx(min_loss_of_a(), abs=0.002)


def min_loss_of_a() -> float:
    w = np.linspace(0, 0.5, 100_001)
    a = np.sqrt(2 * w - 2 * w**2)
    return float(((1 - a) ** 2 + 2 * w**2).min())


def test_a_partial_front_of_a_whole_log_is_that_of_the_end_whatever_rivals_measured(
    tmp_path: Path,
) -> None:
    study = make_study("ab", list(IDEAL), ("base", "soup"), evaluations=16, remeasure=2)
    with fronts_of_few_points(30):
        result, log = run(study, tmp_path, bowls), logged(tmp_path)
        better = {"a": 0.55, "b": 0.45}
        others = [
            changed(e, coefficients=better, role="opponent", value=0.0) for e in log[:2]
        ]

        front = find_partial_front(study, [*log, *others], [study.select])

    end = result.front[result.selected]
    assert front.chosen.coefficients == pytest.approx(end, abs=1e-9)


ACCURACY = Metric(higher_is_better=True, lower=0.0, upper=1.0)
Value = Callable[[np.ndarray], float]


def search_of(
    folder: Path, d: int, tasks: Mapping[str, tuple[Metric, Value]], **spec: Any
) -> tuple[StudyResult, np.ndarray]:
    """Search ``d`` coefficients; returns the result and the predicted front (k, d)."""
    names = [f"model{i}" for i in range(d)]
    metrics = {task: metric for task, (metric, _) in tasks.items()}
    study = make_study(names, metrics, **spec)

    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        value = tasks[task][1](np.array(list(coefficients.values())))
        return Measurement(float(value), None, 1)

    with open_log(folder / "evaluations.jsonl") as log:
        result = run_study(study, evaluate, log)
    front = np.array([study.vector(c) for c in result.front])
    # Beside what was measured, and what another is only predicted to dominate.
    predicted = study.predict(result.surrogates, front)
    return result, front[non_dominated(predicted)]


def bowl(*centre: float) -> Value:
    return lambda c: 1 + float(((c - np.array(centre)) ** 2).sum())


def test_a_task_vector_that_stands_twice_takes_nothing_away(tmp_path: Path) -> None:
    tasks = {
        "near": (LOSS, lambda c: 1 + (c.sum() - 0.2) ** 2),
        "far": (LOSS, lambda c: 1 + (c.sum() - 0.9) ** 2),
    }

    result, front = search_of(tmp_path, 2, tasks)

    # Only the sum counts: no two points have the same one, and all of it is covered.
    sums = np.sort(front.sum(axis=1))
    assert (np.diff(sums) > 1e-7).all()
    assert sums[[0, -1]] == pytest.approx([0.2, 0.9], abs=1e-2)
    for surrogate in result.surrogates.values():
        _, *linear = surrogate.terms[:3]
        assert linear[1] == pytest.approx(linear[0], abs=1e-6)


def test_a_constant_task_has_no_say(tmp_path: Path) -> None:
    tasks = {"flat": (ACCURACY, lambda _: 0.25), "bowl": (LOSS, bowl(0.3, 0.6))}

    result, front = search_of(tmp_path, 2, tasks)

    assert front == pytest.approx(np.array([[0.3, 0.6]]), abs=0.02)
    assert result.surrogates["flat"].predict(front) == pytest.approx(0.25, abs=1e-6)


def test_failures_in_the_first_design_are_made_up_for(tmp_path: Path) -> None:
    def fails_nearly_everywhere(c: np.ndarray) -> float:
        return bowl(0.1, 0.1)(c) if c.sum() < 0.6 else math.nan

    tasks = {"frail": (LOSS, fails_nearly_everywhere), "firm": (LOSS, bowl(0.8, 0.8))}

    result, _ = search_of(tmp_path, 2, tasks, evaluations=20)

    of_frail = [e for e in logged(tmp_path) if e.task == "frail"]
    assert all(e.failed for e in of_frail[1:4])  # the singles, and the soup
    assert result.surrogates["frail"].quality.n >= 3
