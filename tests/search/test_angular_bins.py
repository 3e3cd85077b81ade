"""Bins, scores and draws of Bayesian MAP, on numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mergekit_map.search.bayesian import (
    bin_of,
    bin_probabilities,
    bin_scores,
    n_bins,
    propose_points,
    squared_errors,
)

UNIT = np.array([[0.0, 1.0]])


def box(d: int, lower: float = 0.0, upper: float = 1.0) -> np.ndarray:
    return np.array([[lower, upper]] * d)


def at(degrees: float, radius: float = 0.5) -> list[float]:
    angle = math.radians(degrees)
    return [radius * math.cos(angle), radius * math.sin(angle)]


def test_two_coefficients_are_cut_into_six_sectors() -> None:
    X = np.array([at(0), at(14), at(16), at(44), at(46), at(74), at(76), at(90)])

    assert bin_of(X, box(2)).tolist() == [0, 0, 1, 2, 3, 4, 5, 5]


def test_sectors_start_at_the_lower_corner_in_units_of_the_box() -> None:
    bounds = np.array([[-1.0, 1.0], [2.0, 3.0]])
    # The first halfway along both sides, at 45 degrees of the unit box; the second at
    # atan(0.2 / 0.9) = 12.5 degrees.
    X = np.array([[0.002, 2.5], [0.8, 2.2]])

    assert bin_of(X, bounds).tolist() == [2, 0]


def test_three_coefficients_have_two_angles() -> None:
    # First angle from the first axis, second one from the second axis towards the
    # third: three bins each, of 30 degrees.
    X = np.array(
        [
            [0.5, 0.0, 0.0],  # 0 and undefined
            [0.5, 0.1, 0.0],  # 11.3 and 0
            [0.5, 0.0, 0.1],  # 11.3 and 90
            [0.5, 0.5, 0.5],  # 54.7 and 45
            [0.0, 0.5, 0.0],  # 90 and 0
            [0.1, 0.1, 0.9],  # 83.7 and 83.7
        ]
    )

    assert bin_of(X, box(3)).tolist() == [0, 0, 2, 4, 6, 8]


def test_one_coefficient_has_one_bin() -> None:
    assert bin_of(np.array([[0.1], [0.9]]), UNIT).tolist() == [0, 0]
    assert n_bins(1) == 1


def test_the_corner_and_what_lies_outside_belong_to_no_bin() -> None:
    X = np.array([[0.0, 0.0], [1.1, 0.5], [-0.1, 0.5]])

    assert bin_of(X, box(2)).tolist() == [-1, -1, -1]


def test_scores_are_means_where_all_errors_of_a_bin_are_equal() -> None:
    bins = np.array([0, 0, 0, 1, 3, -1])
    errors = np.array([0.2, 0.2, 0.2, 0.5, np.nan, 9.0])

    scores = bin_scores(bins, errors, 4, np.random.default_rng(0))

    # Bin 2 has no point and bin 3 no measured one: they get the largest score.
    assert scores == pytest.approx([0.2, 0.5, 0.5, 0.5])


def test_half_the_deviation_of_the_bootstrapped_mean_is_added() -> None:
    # One of five is left out, 30 times: means of (15 - x) / 4 for x in 1 to 5, whose
    # standard deviation over all five is sqrt(2) / 4.
    errors = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    bins = np.zeros(5, dtype=int)
    scores = [
        bin_scores(bins, errors, 1, np.random.default_rng(seed))[0]
        for seed in range(200)
    ]

    # Of 30 draws the deviation is a little smaller: by sqrt(29 / 30) at most.
    assert np.mean(scores) == pytest.approx(3 + math.sqrt(2) / 8, rel=2e-3)
    assert np.std(scores) > 0


def test_nothing_known_scores_zero_and_is_drawn_alike() -> None:
    scores = bin_scores(np.array([-1]), np.array([np.nan]), 4, np.random.default_rng(0))

    assert scores.tolist() == [0, 0, 0, 0]
    assert bin_probabilities(scores) == pytest.approx([0.25] * 4)


def test_probabilities_are_a_softmax_in_units_of_the_largest_score() -> None:
    probabilities = bin_probabilities(np.array([0.0, 1.0, 2.0]))

    # exp(-2), exp(-1) and 1.
    assert probabilities == pytest.approx(
        np.array([0.1353352832, 0.3678794412, 1.0]) / 1.5032147244
    )
    scaled = bin_probabilities(np.array([0.0, 1e-9, 2e-9]))
    assert scaled == pytest.approx(probabilities)


def test_errors_of_tasks_are_in_units_of_their_variance() -> None:
    measured = np.array([[0.0, 10.0, 5.0], [2.0, 10.0, np.nan], [4.0, 10.0, 7.0]])
    predicted = np.array([[1.0, 11.0, 6.0], [2.0, 10.0, 9.0], [4.0, 10.0, 7.0]])

    # Variances 8/3, 0 (counts for nothing) and 1: (1 / (8/3) + 0 + 1 / 1) / 3, 0, 0.
    errors = squared_errors(measured, predicted)
    assert errors == pytest.approx([(3 / 8 + 1) / 3, 0, 0])
    rescaled = squared_errors(measured * 1000 + 5, predicted * 1000 + 5)
    assert rescaled == pytest.approx(errors)


def test_a_merge_without_any_measurement_has_no_error() -> None:
    measured = np.array([[np.nan], [1.0], [2.0]])

    errors = squared_errors(measured, np.ones((3, 1)))

    assert np.isnan(errors[0])
    assert errors[1:] == pytest.approx([0, 4])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_points_are_drawn_in_the_bins_that_err(d: int) -> None:
    rng = np.random.default_rng(d)
    bounds = box(d, 0.2, 1.7)
    X = 0.2 + 1.5 * rng.random((400, d))
    worst = n_bins(d) // 2
    errors = np.where(bin_of(X, bounds) == worst, 1.0, 0.0)

    points = propose_points(X, errors, bounds, 300, rng)

    assert ((points >= 0.2) & (points <= 1.7)).all()
    drawn = np.bincount(bin_of(points, bounds), minlength=n_bins(d)) / 300
    expected = np.full(n_bins(d), math.exp(-2))
    expected[worst] = 1.0
    assert drawn == pytest.approx(expected / expected.sum(), abs=0.08)


def test_a_bin_is_drawn_uniformly_in_angle_and_radius() -> None:
    rng = np.random.default_rng(5)
    X = np.array([at(80), at(10)])
    points = propose_points(X, np.zeros(2), box(2), 4000, rng)

    angles = np.arctan2(points[:, 1], points[:, 0]) / (math.pi / 2)
    # Along each direction up to the side of the box.
    radii = points.max(axis=1)
    for values in (angles, radii):
        shares = np.histogram(values, bins=10, range=(0, 1))[0] / 4000
        assert shares == pytest.approx(np.full(10, 0.1), abs=0.02)
