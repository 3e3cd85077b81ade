"""Measures of fronts: by hand, against pymoo and moocore, and their identities."""

import math

import moocore
import numpy as np
import pytest
from pymoo.indicators.hv import HV

from mergekit_map.compare.indicators import (
    generational_distance,
    hypervolume,
    r_squared,
    win_rate,
)

Array = np.ndarray


def sphere_front(n: int, m: int, seed: int = 0) -> Array:
    """Points of a quarter sphere, larger is better; none dominates another."""
    Y = np.abs(np.random.default_rng(seed).normal(size=(n, m)))
    return Y / np.linalg.norm(Y, axis=1, keepdims=True)


def test_the_win_rate_counts_every_pair_in_every_task() -> None:
    ours, theirs = np.array([[1.0, 2.0]]), np.array([[0.0, 3.0]])

    assert win_rate(ours, theirs, np.random.default_rng(0)) == 0.5
    assert win_rate(ours, theirs - 5, np.random.default_rng(0)) == 1.0
    assert win_rate(ours - 5, theirs, np.random.default_rng(0)) == 0.0


def test_ties_count_half_in_a_win_rate() -> None:
    ours, theirs = np.array([[1.0, 1.0]]), np.array([[1.0, 0.0]])

    assert win_rate(ours, theirs, np.random.default_rng(0)) == 0.75


def test_a_win_rate_with_as_many_points_as_asked_uses_each_once() -> None:
    ours, theirs = sphere_front(20, 3), sphere_front(20, 3, seed=1)

    expected = (ours[:, None] > theirs[None]).mean()

    rate = win_rate(ours, theirs, np.random.default_rng(2), k=20)
    assert rate == pytest.approx(expected, abs=1e-12)


def test_distances_are_those_the_paper_prints() -> None:
    front = np.array([[0.0, 3.0], [4.0, 0.0]])
    reference = np.array([[0.0, 0.0]])

    # Distances 3 and 4 to the one reference point, of which the nearest is 3 away.
    assert generational_distance(front, reference) == pytest.approx(5 / 2)
    assert generational_distance(reference, front) == pytest.approx(3.0)


def test_the_distance_of_a_front_to_itself_is_zero() -> None:
    Y = sphere_front(30, 4)

    assert generational_distance(Y, Y) == pytest.approx(0.0, abs=1e-7)


def test_the_hypervolume_of_a_staircase_is_that_on_paper() -> None:
    reference = np.array([[1.0, 0.0], [0.0, 1.0]])  # ideal (1, 1), nadir (0, 0)
    front = np.array([[0.5, 0.5]])

    # Losses (0, 1), (1, 0) up to 1.1: 0.1 x 1.1 twice, less the 0.1 x 0.1 they share.
    whole = 2 * 0.11 - 0.01
    assert hypervolume(front, reference) == pytest.approx(0.36 / whole)
    assert hypervolume(reference, reference) == pytest.approx(1.0)


@pytest.mark.parametrize("m", [2, 3, 5])
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


def test_r_squared_of_a_constant_is_not_a_number() -> None:
    assert math.isnan(r_squared(np.full(4, 0.3), np.full(4, 0.3)))
