"""Measures of fronts: by hand, against pymoo and moocore, and their identities."""

import math

import moocore
import numpy as np
import pytest
from pymoo.indicators.hv import HV

from mergekit_map.compare.indicators import (
    as_they_are,
    best_merges,
    best_rows,
    by_ideal_and_nadir,
    front_of,
    hypervolume,
    mean_and_std,
    preferred_models,
    r_squared,
    score_front,
    weighted_sums,
    win_rate,
)
from mergekit_map.errors import EvaluationError

Array = np.ndarray
# Two ends, one in between, one dominated, one that failed on a task.
MEASURED = np.array([[0.0, 8.0], [4.0, 0.0], [3.0, 6.0], [1.0, 1.0], [math.nan, 9.0]])
FRONT = [[0.0, 8.0], [3.0, 6.0], [4.0, 0.0]]


def sphere_front(n: int, m: int, seed: int = 0) -> Array:
    """Points of a quarter sphere, larger is better; none dominates another."""
    Y = np.abs(np.random.default_rng(seed).normal(size=(n, m)))
    return Y / np.linalg.norm(Y, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("ours", "theirs", "rate"),
    [
        ([1.0, 2.0], [0.0, 3.0], 0.5),
        ([1.0, 2.0], [-5.0, -2.0], 1.0),
        ([-4.0, -3.0], [0.0, 3.0], 0.0),
        ([1.0, 1.0], [1.0, 0.0], 0.75),  # ties count half
    ],
)
def test_the_win_rate_counts_every_pair_in_every_task(
    ours: list[float], theirs: list[float], rate: float
) -> None:
    rng = np.random.default_rng(0)

    assert win_rate(np.array([ours]), np.array([theirs]), rng) == rate


def test_a_win_rate_with_as_many_points_as_asked_uses_each_once() -> None:
    ours, theirs = sphere_front(20, 3), sphere_front(20, 3, seed=1)

    expected = (ours[:, None] > theirs[None]).mean()

    rate = win_rate(ours, theirs, np.random.default_rng(2), k=20)
    assert rate == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("m", [2, 5])
def test_the_hypervolume_agrees_with_pymoo_of_normalised_losses(m: int) -> None:
    reference, front = 7 * sphere_front(40, m) - 3, 7 * sphere_front(25, m, 1) - 3
    ideal, nadir = reference.max(axis=0), reference.min(axis=0)
    volume = HV(ref_point=np.full(m, 1.1))

    def losses(Y: Array) -> Array:
        return (ideal - Y) / (ideal - nadir)

    expected = volume(losses(front)) / volume(losses(reference))
    assert hypervolume(front, reference) == pytest.approx(expected, rel=1e-12)


def test_the_approximate_hypervolume_is_near_the_exact_one_and_1_of_itself() -> None:
    reference, front = sphere_front(60, 7), sphere_front(40, 7, seed=1)
    ideal, width = reference.max(axis=0), np.ptp(reference, axis=0)

    exact = [
        moocore.hypervolume((ideal - Y) / width, ref=1.1) for Y in (front, reference)
    ]

    assert hypervolume(front, reference) == pytest.approx(exact[0] / exact[1], rel=5e-3)
    assert hypervolume(reference, reference) == 1.0


@pytest.mark.parametrize("m", [3, 8])
def test_a_point_far_below_the_nadir_adds_nothing(m: int) -> None:
    reference, front = sphere_front(30, m), sphere_front(10, m, seed=1)
    awful = np.full((1, m), 2.0)
    awful[0, -1] = -50.0

    assert hypervolume(awful, reference) == 0.0
    assert hypervolume(np.vstack([front, awful]), reference) == pytest.approx(
        hypervolume(front, reference)
    )


def test_a_task_constant_over_the_reference_is_measured_by_both_fronts() -> None:
    reference = np.array([[1.0, 0.0, 4.0], [0.0, 1.0, 4.0]])
    worse = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])

    assert hypervolume(reference, reference) == pytest.approx(1.0)
    # The whole range of 2 is lost, which leaves 0.1 of the 1.1 that there are.
    assert hypervolume(worse, reference) == pytest.approx(0.1 / 1.1)
    one = np.array([[1.0, 2.0]])
    assert hypervolume(one, one) == pytest.approx(1.0)


def test_r_squared_is_one_for_the_truth_and_zero_for_the_mean() -> None:
    y = np.array([1.0, 2.0, 4.0])

    assert r_squared(y, y) == 1.0
    assert r_squared(y, np.full(3, y.mean())) == pytest.approx(0.0)
    # Residuals 1, 0, 0 against squares of 16/9 + 1/9 + 25/9.
    assert r_squared(y, np.array([2.0, 2.0, 4.0])) == pytest.approx(1 - 9 / 42)
    assert math.isnan(r_squared(np.full(4, 0.3), np.full(4, 0.3)))


def test_the_reference_is_what_nothing_dominates_each_once() -> None:
    front = front_of(MEASURED[:3], MEASURED)

    np.testing.assert_array_equal(front, FRONT)


def test_says_so_where_everything_failed() -> None:
    with pytest.raises(EvaluationError, match="all 2 merges failed on some task"):
        front_of(np.array([[1.0, math.nan], [math.nan, 2.0]]))


def test_tasks_are_scaled_by_the_ends_of_the_reference() -> None:
    scale = by_ideal_and_nadir(np.array(FRONT))

    scaled = scale.apply(np.array([[3.0, 6.0], [6.0, -8.0]]))

    np.testing.assert_allclose(scaled, [[0.75, 0.75], [1.5, -1.0]])


def test_every_preference_gets_the_merge_with_the_best_sum() -> None:
    scale = by_ideal_and_nadir(np.array(FRONT))
    preferences = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])

    assert best_merges(MEASURED, preferences, scale).tolist() == [1, 2, 0]
    twice = np.vstack([MEASURED, MEASURED])  # of equal ones the first
    assert best_merges(twice, preferences, scale).tolist() == [1, 2, 0]
    sums = weighted_sums(best_rows(MEASURED, preferences, scale), preferences, scale)
    np.testing.assert_allclose(sums.sums, [1.0, 0.75, 1.0])


def test_distances_go_from_the_front_to_the_direct_search_and_back() -> None:
    reference = np.array([[0.0, 10.0], [2.0, 0.0]])  # so that scales are 2 and 10
    front = np.array([[1.0, 5.0]])
    direct = np.array([[1.0, 0.0], [1.0, -15.0]])

    spent = {"evaluations": 7, "documents": 70, "charged": 8}
    scores = score_front(front, reference, direct, **spent)

    assert vars(scores).items() >= spent.items()
    # One point, 0.5 from the nearest; two points, 0.5 and 2 from the only one.
    assert scores.gd_direct == pytest.approx(0.5)
    assert scores.igd_direct == pytest.approx(math.hypot(0.5, 2) / 2)
    # One point, sqrt(0.5) from both ends; both as far from it.
    assert scores.gd == pytest.approx(math.sqrt(0.5))
    assert scores.igd == pytest.approx(1 / 2)


def test_what_failed_everywhere_has_no_sum() -> None:
    failed = np.full((3, 2), math.nan)

    rows = best_rows(failed, np.ones((4, 2)), as_they_are(2))

    assert rows.shape == (4, 2)
    assert math.isnan(mean_and_std(rows.sum(axis=1)).mean)
    assert math.isnan(mean_and_std([]).std)


def test_a_model_has_the_shares_of_all_the_tasks_it_is_best_at() -> None:
    shares = preferred_models(np.array([[0.2, 0.3, 0.5]]), np.array([1, 0, 1]), 3)

    np.testing.assert_allclose(shares, [[0.3, 0.7, 0.0]])
