"""Selection: small fronts whose answer can be read off, and identities."""

from functools import partial

import numpy as np
import pytest
from surrogate_data import sphere_front

from mergekit_map.optimize.scalarization import (
    farthest_point_subset,
    nearest_to_limits,
    select_point,
)

# Three points of a concave front; the middle one is best in balance.
BALANCED = np.array([[1.0, 0.0], [0.8, 0.8], [0.0, 1.0]])
# Three points of a hollow front: no weighted sum is largest in the middle.
HOLLOW = np.array([[1.0, 0.0], [0.4, 0.4], [0.0, 1.0]])
CONSTANT = np.column_stack([BALANCED, [7.0, 7.0, 7.0]])
# Sum 1 everywhere: (0.5, 0.5) is nearest to (1, 1), twice.
TIES = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("Y", "weights", "index"),
    [
        (BALANCED, [1, 0], 0),
        (BALANCED, [1, 1], 1),
        (BALANCED, [0, 1], 2),
        (BALANCED, [9, 1], 0),
        # A constant task has no say; alone it leaves a tie, which the nearest point to
        # the ideal wins, and of equals the first.
        (CONSTANT, [0, 1, 99], 2),
        (CONSTANT, [0, 0, 1], 1),
        (TIES, [1, 1], 2),
        (CONSTANT[:, ::2], [1, 1], 0),
        (HOLLOW, [1, 1], 0),
        (np.array([[1.0, 0.0], [0.0, 1.0]]), [1, 1], 0),  # a tie, for the first
        (np.array([[1.0], [2.0]]), [1], 1),
        (np.array([[3.0, 4.0]]), [1, 1], 0),
    ],
)
def test_preferences_decide(Y: np.ndarray, weights: list[float], index: int) -> None:
    assert select_point(Y, np.array(weights, dtype=float)) == index


def test_achievement_gives_each_point_of_a_front_to_some_preference() -> None:
    t = np.linspace(0, 1, 11)
    hollow = np.column_stack([t**3, (1 - t) ** 3])
    # At these weights both tasks of a point miss their best by the same.
    weights = (1 - hollow)[:, ::-1]

    chosen = [select_point(hollow, w, achievement=True) for w in weights]

    assert chosen == list(range(11))
    assert {select_point(hollow, w) for w in weights} == {0, 10}  # of a sum


def test_achievement_leaves_a_point_that_is_no_better_on_its_worst_task() -> None:
    Y = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, 0.5, 0.9], [0.0, 1.0, 1.0]])

    assert select_point(Y, np.ones(3), achievement=True) == 2


@pytest.mark.parametrize("achievement", [False, True])
@pytest.mark.parametrize("m", [2, 3, 5])
def test_units_and_the_order_of_points_and_tasks_do_not_matter(
    achievement: bool, m: int
) -> None:
    select = partial(select_point, achievement=achievement)
    Y = sphere_front(40, m, seed=m)
    order = np.random.default_rng(m).permutation(len(Y))
    for weights in (np.ones(m), np.arange(1.0, m + 1)):
        index = select(Y, weights)

        assert select(Y * 10.0 ** np.arange(m) - 7, weights) == index
        assert order[select(Y[order], weights)] == index
        assert select(np.vstack([Y, Y]), weights) == index
        assert select(Y[:, ::-1], weights[::-1]) == index
        assert select(Y, weights * 1e300) == index


def test_of_two_tasks_the_knee_is_farthest_from_the_chord_between_the_ends() -> None:
    for seed in range(20):
        Y = sphere_front(30, 2, seed) * [1.0, 50.0]
        (x0, y0), (x1, y1) = Y[Y[:, 0].argmin()], Y[Y[:, 1].argmin()]
        beyond = (y0 - y1) * (Y[:, 0] - x0) + (x1 - x0) * (Y[:, 1] - y0)
        assert select_point(Y, np.ones(2)) == beyond.argmax()


@pytest.mark.parametrize(
    ("lower", "index"),
    [
        ([1.2, -np.inf], 0),
        ([-np.inf, 1.2], 2),
        ([0.9, 0.9], 1),
        ([0.0, 0.0], 1),  # all keep these: the nearest to the ideal
    ],
)
def test_finds_the_point_nearest_to_limits(lower: list[float], index: int) -> None:
    assert nearest_to_limits(BALANCED, np.array(lower)) == index
    scale = np.array([1e-3, 1e3])
    assert nearest_to_limits(BALANCED * scale, np.array(lower) * scale) == index


def test_spread_takes_the_ends_then_halves_the_gaps() -> None:
    t = np.linspace(0, 1, 9)
    line = np.column_stack([t, 10 * (1 - t)])

    assert farthest_point_subset(line, 5).tolist() == [8, 0, 4, 2, 6]
    assert farthest_point_subset(line, 3).tolist() == [8, 0, 4]
    assert farthest_point_subset(line, 1).tolist() == [8]
    assert farthest_point_subset(line, 0).tolist() == []


def test_spread_ignores_units_and_repeated_points() -> None:
    Y = np.random.default_rng(1).normal(size=(40, 3))

    chosen = farthest_point_subset(Y, 8)

    again = farthest_point_subset(Y * [1e-3, 1.0, 1e3] + 7, 8)
    np.testing.assert_array_equal(again, chosen)
    assert len(set(chosen.tolist())) == 8
    assert set(Y.argmax(axis=0)) == set(chosen[:3].tolist())
    repeated = np.repeat(BALANCED, 4, axis=0)
    assert farthest_point_subset(repeated, 10).tolist() == [0, 8, 4]
    assert farthest_point_subset(np.ones((5, 2)), 3).tolist() == [0]
