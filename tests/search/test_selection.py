"""Selection: small fronts whose answer can be read off, and identities."""

import numpy as np
import pytest

from mergekit_map.errors import DesignError
from mergekit_map.search.selection import select_by_preference, spread

# Three points of a concave front; the middle one is best in balance.
BALANCED = np.array([[1.0, 0.0], [0.8, 0.8], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("weights", "index"), [([1, 0], 0), ([1, 1], 1), ([0, 1], 2), ([9, 1], 0)]
)
def test_the_preference_decides(weights: list[float], index: int) -> None:
    assert select_by_preference(BALANCED, np.array(weights, dtype=float)) == index


def test_units_and_the_scale_of_the_weights_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(30, 3))
    weights = rng.uniform(size=3)

    index = select_by_preference(Y, weights)

    moved = Y * [1e-6, 1.0, 1e6] + [5.0, -3.0, 0.0]
    assert select_by_preference(moved, weights) == index
    assert select_by_preference(Y, weights * 1e300) == index
    assert select_by_preference(Y[:, ::-1], weights[::-1]) == index
    assert select_by_preference(Y[::-1], weights) == len(Y) - 1 - index


def test_a_constant_task_has_no_say() -> None:
    constant = np.column_stack([BALANCED, [7.0, 7.0, 7.0]])

    assert select_by_preference(constant, np.array([0.0, 1.0, 99.0])) == 2
    # Alone it leaves a tie, which the nearest point to the ideal wins.
    assert select_by_preference(constant, np.array([0.0, 0.0, 1.0])) == 1


def test_rounding_of_a_constant_task_has_no_say() -> None:
    noisy = np.column_stack([BALANCED, [7.0, 7.0 + 1e-15, 7.0 - 1e-15]])

    assert select_by_preference(noisy, np.array([0.0, 1.0, 99.0])) == 2


def test_ties_go_to_the_point_nearest_the_ideal_then_to_the_first() -> None:
    # Sum 1 everywhere: (0.5, 0.5) is nearest to (1, 1), twice.
    Y = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])

    assert select_by_preference(Y, np.array([1.0, 1.0])) == 2


def test_one_point_is_its_own_choice() -> None:
    assert select_by_preference(np.array([[3.0, 4.0]]), np.array([1.0, 2.0])) == 0


@pytest.mark.parametrize(
    "weights", [[0.0, 0.0], [1.0, -0.1], [np.nan, 1.0], [np.inf, 1.0]]
)
def test_a_preference_that_is_none_is_refused(weights: list[float]) -> None:
    with pytest.raises(DesignError, match="finite and not negative, with at least one"):
        select_by_preference(BALANCED, np.array(weights))


@pytest.mark.parametrize(
    ("Y", "weights", "message"),
    [
        (BALANCED, np.ones(3), "2 tasks need as many weights"),
        (np.empty((0, 2)), np.ones(2), "at least one point"),
        (np.array([[np.nan, 1.0]]), np.ones(2), "must be finite"),
    ],
)
def test_wrong_arrays_are_programming_mistakes(
    Y: np.ndarray, weights: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        select_by_preference(Y, weights)


def test_spread_takes_the_ends_then_halves_the_gaps() -> None:
    t = np.linspace(0, 1, 9)
    line = np.column_stack([t, 10 * (1 - t)])

    assert spread(line, 5).tolist() == [8, 0, 4, 2, 6]
    assert spread(line, 3).tolist() == [8, 0, 4]
    assert spread(line, 1).tolist() == [8]
    assert spread(line, 0).tolist() == []


def test_spread_ignores_units() -> None:
    Y = np.random.default_rng(1).normal(size=(40, 3))

    chosen = spread(Y, 8)

    np.testing.assert_array_equal(spread(Y * [1e-3, 1.0, 1e3] + 7, 8), chosen)
    assert len(set(chosen.tolist())) == 8
    assert set(Y.argmax(axis=0)) == set(chosen[:3].tolist())


def test_spread_returns_fewer_where_points_repeat() -> None:
    repeated = np.repeat(BALANCED, 4, axis=0)

    assert spread(repeated, 10).tolist() == [0, 8, 4]
    assert spread(np.ones((5, 2)), 3).tolist() == [0]


def test_of_equally_good_ends_spread_takes_the_one_that_is_not_dominated() -> None:
    Y = np.array([[1.0, 0.0], [1.0, 0.5], [0.0, 1.0]])

    assert spread(Y, 2).tolist() == [1, 2]


def test_a_point_best_at_two_tasks_is_taken_once() -> None:
    Y = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.2, 0.5]])

    assert spread(Y, 3).tolist() == [0, 1, 2]


def test_spread_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="cannot choose -1 points"):
        spread(BALANCED, -1)
