"""The study on metrics whose front is known, with no model anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import (
    IDEAL,
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
from test_nested_search import measuring, own_corner

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.results.front import Front
from mergekit_map.results.limits import unmet_limits
from mergekit_map.search.finish import find_partial_front
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement


@pytest.fixture
def study() -> Study:
    plain = {"remeasure": 3, "surrogate": "quadratic", "refine": False}
    return make_study("ab", list(IDEAL), ("base", "a"), evaluations=10, **plain)


@pytest.mark.whole_front
def test_finds_the_front_between_two_bowls(study: Study) -> None:
    alike = SelectSpec(prefer=dict.fromkeys(IDEAL, 1))  # "b" alone is not measured
    result = run(replace(study, select=alike), Path(), Recorder(bowls))

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


def test_stops_when_the_first_merge_cannot_be_measured(study: Study) -> None:
    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        if task == "near_b":
            raise RuntimeError(f"no {task} at {len(coefficients)}")
        return bowls(coefficients, task)

    with pytest.raises(EvaluationError, match=r"'near_b' cannot be .*no near_b"):
        run(study, Path(), evaluate)
    assert len(logged()) <= 2


def test_anchors_outside_the_box_are_measured_but_not_fitted(study: Study) -> None:
    inner = replace(study, bounds={"a": (0.2, 1.0), "b": (0.1, 1.0)})

    result = run(inner, Path(), Recorder(bowls))

    n_front = sum(e.role == "front" for e in logged()) // 2
    assert {s.quality.n for s in result.surrogates.values()} == {10 - 2 + n_front}
    assert np.all(np.array([list(c.values()) for c in result.front]) >= [0.2, 0.1])


@pytest.mark.parametrize("ends", [(0.6, 1.5), (0.1, 0.4)])
def test_a_box_without_reference_points_is_searched(ends: tuple[float, float]) -> None:
    study = make_study("ab", list(IDEAL), remeasure=1)

    run(replace(study, bounds=dict.fromkeys("ab", ends)), Path(), bowls)

    front = [list(point.coefficients.values()) for point in front_of().points]
    assert np.min(front) >= ends[0]
    assert np.max(front) <= ends[1]


def test_one_task_has_a_partial_front_before_a_merge_is_measured_on_all() -> None:
    study = make_study("ab", ["near_a"], ("base", "a", "b"), documents={"near_a": 5})
    study = replace(study, bounds=dict.fromkeys("ab", (0.2, 0.8)))
    places = np.random.default_rng(0).uniform(0.2, 0.8, (8, 2))
    merges = [dict(zip("ab", place, strict=True)) for place in places.tolist()]
    log = [
        line(merge, "near_a", bowls(merge, "near_a").value, **more)
        for known, more in (
            (study.anchors.values(), {}),
            (merges, {"sampling": 0.1, "stderr": 0.2}),
        )
        for merge in known
    ]

    assert len(find_partial_front(study, log, []).points) == 1


def searched(
    select: SelectSpec, path: Path = Path(), anchors: Sequence[str] = "abc"
) -> Front:
    search = {"evaluations": 15, "remeasure": 0}
    study = make_study("abc", "abc", anchors, select=select, **search)
    run(study, path, measuring(own_corner))
    return front_of(path)


def test_a_limit_that_nothing_keeps_ends_a_search_all_the_same() -> None:
    # The best of all three alike is 2 / 3 at 1 / 3.
    front = searched(SelectSpec(require=dict.fromkeys("abc", 0.6)))

    assert front.chosen.is_measured(*"abc")
    missed = np.array([r.value for r in front.chosen.readings("predicted").values()])
    assert (missed - 0.6).clip(0).sum() == pytest.approx(0.2, abs=1e-3)
    assert "the nearest to its limits that was found" in front.reason
    assert "at most 0.6 (measured " in unmet_limits(front)


def test_a_search_ends_no_worse_than_the_base_anywhere() -> None:
    # The base has a loss of 1 everywhere; a alone one of 2 on the tasks of the others.
    base = ("base", *"abc")
    free, bound = (
        searched(SelectSpec(prefer={"a": 1}, **more), Path(name), anchors=base)
        for name, more in (("free", {}), ("bound", {"not_worse_than": "base"}))
    )

    assert free.chosen.measured["b"].value == pytest.approx(2, abs=0.02)
    losses = {t: r.value or 0 for t, r in bound.chosen.measured.items()}
    assert losses["b"] <= 1 + 1e-6
    assert losses["c"] <= 1 + 1e-6
    # With b and c at w, a may be as large as (2 w - 2 w^2)^(1/2): at most at w = 1/2.
    w = np.linspace(0, 0.5, 100_001)
    least = ((1 - np.sqrt(2 * w - 2 * w**2)) ** 2 + 2 * w**2).min()
    assert losses["a"] == pytest.approx(least, abs=0.002)


def test_a_partial_front_of_a_whole_log_is_that_of_the_end_whatever_rivals_found() -> (
    None
):
    study = make_study("ab", list(IDEAL), ("base", "soup"), evaluations=16, remeasure=2)
    with fronts_of_few_points(30):
        result, log = run(study, Path(), bowls), logged()
        better = {"a": 0.55, "b": 0.45}
        others = [
            changed(e, coefficients=better, role="opponent", value=0.0) for e in log[:2]
        ]

        front = find_partial_front(study, [*log, *others], [study.select])

    end = result.front[result.selected]
    assert front.chosen.coefficients == pytest.approx(end, abs=1e-9)


def test_a_task_vector_that_stands_twice_takes_nothing_away() -> None:
    best = {"near": 0.2, "far": 0.9}
    study = make_study("ab", list(best))

    def of_the_sum(c: Mapping[str, float], task: str) -> Measurement:
        return Measurement(1 + (sum(c.values()) - best[task]) ** 2, None, 1)

    result = run(study, Path(), of_the_sum)

    # Beside what was measured, and what another is only predicted to dominate.
    front = study.vectors(result.front)
    front = front[non_dominated(study.predict(result.surrogates, front))]
    # Only the sum counts: no two points have the same one, and all of it is covered.
    sums = np.sort(front.sum(axis=1))
    assert (np.diff(sums) > 1e-7).all()
    assert sums[[0, -1]] == pytest.approx([0.2, 0.9], abs=1e-2)
    for surrogate in result.surrogates.values():
        _, *linear = surrogate.terms[:3]
        assert linear[1] == pytest.approx(linear[0], abs=1e-6)
