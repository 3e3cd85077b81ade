"""Bayesian MAP as rounds of a study, on metrics with no model anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Recorder, logged, make_study, run
from surrogate_data import unit

from mergekit_map.errors import DesignError
from mergekit_map.search.bayesian import (
    bayesian_round,
    bin_of,
    bin_scores,
    n_bins,
    propose_points,
    squared_errors,
)
from mergekit_map.search.checks import search_problems
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement


def at(degrees: float, radius: float = 0.5) -> list[float]:
    angle = math.radians(degrees)
    return [radius * math.cos(angle), radius * math.sin(angle)]


def losses(coefficients: Mapping[str, float], _: str) -> Measurement:
    """Measure a quadratic with a step that none can follow.

    The step is in the sector of the second coefficient.
    """
    x = np.array(list(coefficients.values()))
    value = float(((x - 0.7) ** 2).sum())
    if len(x) > 1 and x[1] > 2 * x[0]:
        value += 3 * np.sin(20 * x[1])
    return Measurement(float(value), None, 10)


def study_of(d: int = 2, **search: Any) -> Study:
    """Search one task, of which the front is found at once."""
    names = "abcd"[:d]
    search = {"strategy": "bayesian", "remeasure": 2, **search}
    return make_study(names, ["step"], ("base", *names), **search)


def merges(path: Path) -> list[tuple[float, ...]]:
    """List the merges that were not measured as points of the front."""
    designed = (e.coefficients for e in logged(path) if e.role != "front")
    return list(dict.fromkeys(tuple(c.values()) for c in designed))


@pytest.mark.parametrize("d", [1, 3])
def test_uses_as_many_evaluations_as_asked_for(d: int, tmp_path: Path) -> None:
    evaluate = Recorder(losses)
    run(study_of(d, evaluations=17), tmp_path / "17", evaluate)
    run(study_of(d), tmp_path / "default", losses)

    assert len(merges(tmp_path / "17")) == 17
    assert len(evaluate.calls) == len(set(evaluate.calls))

    def once_broken(coefficients: Mapping[str, float], task: str) -> Measurement:
        if (coefficients, task) == evaluate.calls[3] and not (tmp_path / "x").exists():
            (tmp_path / "x").touch()
            raise RuntimeError("out of memory")
        return losses(coefficients, task)

    for _ in range(2):  # the merge that failed is measured, and no other
        run(study_of(d, evaluations=17), tmp_path / "broken", once_broken)
    assert len(merges(tmp_path / "broken")) == 17
    # The paper's 6 + 2 * 3 beside the base and the models.
    assert len(merges(tmp_path / "default")) == 1 + d + 12


def test_rounds_go_where_the_surrogate_errs(tmp_path: Path) -> None:
    shares = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        run(study_of(evaluations=25, seed=seed), folder, losses)
        bins = bin_of(np.array(merges(folder)[9:]), unit(2))
        shares.append(np.isin(bins, [4, 5]).mean())  # where x[1] > 2 * x[0], about

    # 2 of 6 sectors; 1/3 if the draws knew nothing.
    assert np.mean(shares) > 0.5


@pytest.mark.parametrize(
    ("d", "search", "key", "message"),
    [
        (2, {"evaluations": 8}, "evaluations", "allow more, better 15, or use map"),
        (4, {}, "strategy", "use map, or nested"),
    ],
)
def test_too_few_evaluations_and_too_many_coefficients_are_refused(
    d: int, search: dict[str, Any], key: str, message: str
) -> None:
    (problem,) = search_problems(study_of(d, **search))

    assert problem.key == ("map", "search", key)
    assert message in problem.message
    with pytest.raises(DesignError, match="only 8 evaluations"):
        bayesian_round(study_of(evaluations=8), [], [], 0)


PLANE = [at(angle) for angle in (0, 14, 16, 44, 46, 74, 76, 90)]
# First angle from the first axis, second one from the second axis towards the third:
# 0 and undefined, 11.3 and 0, 11.3 and 90, 54.7 and 45, 90 and 0, 83.7 and 83.7.
SPACE = [[0.5, 0.0, 0.0], [0.5, 0.1, 0.0], [0.5, 0.0, 0.1], [0.5, 0.5, 0.5]]
SPACE += [[0.0, 0.5, 0.0], [0.1, 0.1, 0.9]]


@pytest.mark.parametrize(
    ("bounds", "X", "bins"),
    [
        (unit(1), [[0.1], [0.9]], [0, 0]),
        (unit(2), PLANE, [0, 0, 1, 2, 3, 4, 5, 5]),
        # In units of the box, from its lower corner: halfway along both sides, at 45
        # degrees of the unit box; and at atan(0.2 / 0.9) = 12.5 degrees.
        ([[-1.0, 1.0], [2.0, 3.0]], [[0.002, 2.5], [0.8, 2.2]], [2, 0]),
        # The corner itself, and what lies outside.
        (unit(2), [[0.0, 0.0], [1.1, 0.5], [-0.1, 0.5]], [-1, -1, -1]),
        (unit(3), SPACE, [0, 0, 2, 4, 6, 8]),  # three bins each, of 30 degrees
    ],
    ids=["one", "two", "units", "outside", "three"],
)
def test_directions_from_the_lower_corner_are_cut_into_bins(
    bounds: Any, X: list[list[float]], bins: list[int]
) -> None:
    assert bin_of(np.array(X), np.array(bounds)).tolist() == bins
    assert n_bins(len(bounds)) == {1: 1, 2: 6, 3: 9}[len(bounds)]


def test_scores_are_means_where_all_errors_of_a_bin_are_equal() -> None:
    bins = np.array([0, 0, 0, 1, 3, -1])
    errors = np.array([0.2, 0.2, 0.2, 0.5, np.nan, 9.0])

    scores = bin_scores(bins, errors, 4, np.random.default_rng(0))

    # Bin 2 has no point and bin 3 no measured one: they get the largest score.
    assert scores == pytest.approx([0.2, 0.5, 0.5, 0.5])
    unknown = np.full(6, np.nan)
    assert bin_scores(bins, unknown, 2, np.random.default_rng(0)).tolist() == [0, 0]


def test_half_the_deviation_of_the_bootstrapped_mean_is_added() -> None:
    # One of five is left out, 30 times: means of (15 - x) / 4 for x in 1 to 5, whose
    # standard deviation over all five is sqrt(2) / 4.
    errors = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    scores = [
        bin_scores(np.zeros(5, dtype=int), errors, 1, np.random.default_rng(seed))[0]
        for seed in range(200)
    ]

    # Of 30 draws the deviation is a little smaller: by sqrt(29 / 30) at most.
    assert np.mean(scores) == pytest.approx(3 + math.sqrt(2) / 8, rel=2e-3)
    assert np.std(scores) > 0


def test_errors_of_tasks_are_in_units_of_their_variance() -> None:
    measured = np.array([[0.0, 10.0, 5.0], [2.0, 10.0, np.nan], [4.0, 10.0, 7.0]])
    predicted = np.array([[1.0, 11.0, 6.0], [2.0, 10.0, 9.0], [4.0, 10.0, 7.0]])

    # Variances 8/3, 0 (counts for nothing) and 1: (1 / (8/3) + 0 + 1 / 1) / 3, 0, 0.
    errors = squared_errors(measured, predicted)
    assert errors == pytest.approx([(3 / 8 + 1) / 3, 0, 0])
    rescaled = squared_errors(measured * 1000 + 5, predicted * 1000 + 5)
    assert rescaled == pytest.approx(errors)
    # A merge without any measurement has none.
    found = squared_errors(np.array([[np.nan], [1.0], [2.0]]), np.ones((3, 1)))
    assert found == pytest.approx([np.nan, 0, 4], nan_ok=True)
    alike = np.full((13, 1), 0.1)  # their mean is another number
    assert not squared_errors(alike, np.nextafter(alike, 0)).any()
    alike[0] = np.nextafter(0.1, 1)  # as an estimate from some documents rounds
    assert not squared_errors(alike, np.nextafter(alike, 0)).any()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_points_are_drawn_in_the_bins_that_err(d: int) -> None:
    rng = np.random.default_rng(d)
    bounds = np.array([[0.2, 1.7]] * d)
    X = 0.2 + 1.5 * rng.random((400, d))
    worst = n_bins(d) // 2
    errors = np.where(bin_of(X, bounds) == worst, 1e-9, 0.0)  # in any unit

    points = propose_points(X, errors, bounds, 300, rng)

    assert ((points >= 0.2) & (points <= 1.7)).all()
    drawn = np.bincount(bin_of(points, bounds), minlength=n_bins(d)) / 300
    expected = np.full(n_bins(d), math.exp(-2))
    expected[worst] = 1.0
    assert drawn == pytest.approx(expected / expected.sum(), abs=0.08)


def test_a_bin_is_drawn_uniformly_in_angle_and_radius() -> None:
    rng = np.random.default_rng(5)
    points = propose_points(np.array([at(80), at(10)]), np.zeros(2), unit(2), 4000, rng)

    angles = np.arctan2(points[:, 1], points[:, 0]) / (math.pi / 2)
    # Along each direction up to the side of the box.
    radii = points.max(axis=1)
    for values in (angles, radii):
        shares = np.histogram(values, bins=10, range=(0, 1))[0] / 4000
        assert shares == pytest.approx(np.full(10, 0.1), abs=0.02)
