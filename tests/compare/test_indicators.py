"""Measures of fronts: by hand, against moocore, and their identities."""

import math

import moocore
import numpy as np
import pytest
from surrogate_data import sphere_front

from mergekit_map.compare.indicators import (
    best_merges,
    front_of,
    generational_distance,
    hypervolume,
    mean_and_std,
    preferred_models,
    scaled,
    weighted_sums,
    win_rate,
)
from mergekit_map.errors import EvaluationError

# Two ends, one in between, one dominated, one that failed on a task.
MEASURED = np.array([[0.0, 8.0], [4.0, 0.0], [3.0, 6.0], [1.0, 1.0], [math.nan, 9.0]])
FRONT = [[0.0, 8.0], [3.0, 6.0], [4.0, 0.0]]


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
    assert win_rate(np.array([ours]), np.array([theirs])) == rate


@pytest.mark.parametrize(("m", "error"), [(2, 1e-12), (5, 1e-12), (7, 5e-3)])
def test_the_hypervolume_is_that_of_normalised_losses(m: int, error: float) -> None:
    reference, front = 7 * sphere_front(60, m) - 3, 7 * sphere_front(40, m, 1) - 3
    ideal, width = reference.max(axis=0), np.ptp(reference, axis=0)

    part, whole = (
        moocore.hypervolume((ideal - Y) / width, ref=1.1) for Y in (front, reference)
    )

    assert hypervolume(front, reference) == pytest.approx(part / whole, rel=error)
    assert hypervolume(reference, reference) == 1.0


def test_a_task_constant_over_the_reference_keeps_its_unit() -> None:
    reference = np.array([[1.0, 0.0, 4.0], [0.0, 1.0, 4.0]])
    worse = np.array([[1.0, 0.0, 3.5], [0.0, 1.0, 3.5]])

    assert hypervolume(reference, reference) == pytest.approx(1.0)
    # Half is lost of the 1.1 that there are.
    assert hypervolume(worse, reference) == pytest.approx(0.6 / 1.1)
    one = np.array([[1.0, 2.0]])
    assert hypervolume(one, one) == pytest.approx(1.0)


def test_the_reference_is_what_nothing_dominates_each_once() -> None:
    np.testing.assert_array_equal(front_of(MEASURED[:3], MEASURED), FRONT)
    with pytest.raises(EvaluationError, match="all 2 merges failed on some task"):
        front_of(np.array([[1.0, math.nan], [math.nan, 2.0]]))


def test_every_preference_gets_the_merge_with_the_best_sum() -> None:
    reference = np.array(FRONT)
    preferences = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])

    best = best_merges(MEASURED, preferences, reference)

    assert best.tolist() == [1, 2, 0]
    twice = np.vstack([MEASURED, MEASURED])  # of equal ones the first
    assert best_merges(twice, preferences, reference).tolist() == [1, 2, 0]
    sums = weighted_sums(MEASURED[best], preferences, reference)
    np.testing.assert_allclose(sums, [1.0, 0.75, 1.0])
    constant = np.column_stack([FRONT, np.full(3, 7.0)])  # in a task, keeps its unit
    found = scaled(np.array([[3.0, 6.0, 7.0], [6.0, -8.0, 9.0]]), constant)
    np.testing.assert_allclose(found, [[0.75, 0.75, 0.0], [1.5, -1.0, 2.0]])


def test_what_failed_everywhere_has_no_sum() -> None:
    failed, preferences = MEASURED[4:], np.full((4, 2), 0.5)

    best = best_merges(failed, preferences, np.array(FRONT))

    sums = weighted_sums(failed[best], preferences, np.array(FRONT))
    assert len(sums) == 4
    assert np.isnan([*sums, mean_and_std([]).std]).all()


def test_a_distance_is_the_root_of_the_squares_divided_by_the_points() -> None:
    front, reference = np.array([[0.5, 0.5]]), np.array([[0.5, 0.0], [0.5, -1.5]])

    assert generational_distance(front, reference) == pytest.approx(0.5)
    there = math.hypot(0.5, 2) / 2
    assert generational_distance(reference, front) == pytest.approx(there)


def test_a_model_has_the_shares_of_all_the_tasks_it_is_best_at() -> None:
    shares = preferred_models(np.array([[0.2, 0.3, 0.5]]), np.array([1, 0, 1]), 3)

    np.testing.assert_allclose(shares, [[0.3, 0.7, 0.0]])
