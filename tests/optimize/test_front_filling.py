"""Local searches from any start, volumes gained, and the merge that is asked for."""

import numpy as np
import pytest
from quick_fronts import fronts_of_few_points
from surrogate_data import bowls, unit

from mergekit_map.optimize.front_filling import (
    improvements,
    pareto_newton,
    relative_gain,
)
from mergekit_map.optimize.nsga3 import compute_front
from mergekit_map.optimize.scalarization import Scalarization, scalarized_optimum

BELOW = -0.1  # the corner that volumes are counted from


def test_every_start_climbs_to_its_own_maximum() -> None:
    starts = np.array([[0.1], [0.9]])

    tops = pareto_newton(lambda X: (X - 0.4) ** 2, starts, 40, np.ones((2, 1)))

    np.testing.assert_allclose(tops, [[0.0], [1.0]])


def test_the_side_of_the_box_that_holds_a_point_is_let_go_again() -> None:
    # The slope at the corner leaves the box by the first coefficient alone.
    centre = np.array([[-0.4, 0.7, 0.5]])

    def tasks(X: np.ndarray) -> np.ndarray:
        apart = X[:, None] - centre
        return -(apart**2).sum(axis=2) - 0.9 * apart[..., 0] * apart[..., 1]

    pushed = pareto_newton(tasks, np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), 20)

    # With the first at 0 the second is best at 0.7 - 0.45 * 0.4.
    np.testing.assert_allclose(pushed, [[0.0, 0.52, 0.5]] * 2, atol=1e-7)


# Exact, and approximated for more than five tasks.
@pytest.mark.parametrize(("m", "error"), [(1, 1e-12), (3, 1e-12), (5, 1e-12), (7, 0.1)])
def test_a_gain_is_the_box_below_a_merge_not_yet_covered(m: int, error: float) -> None:
    known, *Y = np.random.default_rng(m).uniform(0, 1.2, size=(6, m))
    Y = np.vstack([*Y, np.full(m, 1.3)])

    found = improvements(Y, known[None])

    shared = np.minimum(Y, known)
    expected = np.prod(Y - BELOW, axis=1) - np.prod(shared - BELOW, axis=1)
    np.testing.assert_allclose(found, expected, atol=error * expected.max())
    alone = improvements(Y, np.empty((0, m)))
    whole = np.prod(Y - BELOW, axis=1)
    np.testing.assert_allclose(alone, whole, atol=error * whole.max())
    covered = improvements(np.vstack([known, known - 0.1]), known[None])
    np.testing.assert_allclose(covered, 0, atol=1e-12)


def test_a_gain_is_told_as_a_share() -> None:
    known = np.array([[0.4, 0.4]])
    better = np.array([[0.9, 0.4]])

    assert relative_gain(better, known) == pytest.approx(1.0 / 0.5 - 1)
    assert relative_gain(known, better) == 0
    assert relative_gain(known, np.empty((0, 2))) >= 0


# As a front: the corners of the triangle, and nothing of what is between.
CORNERS = np.array([[0.2, 0.3], [0.8, 0.4], [0.4, 0.9]])
BOX, TASKS = unit(2), bowls(CORNERS)
FREE = np.full(3, -np.inf)


def ranges(X: np.ndarray) -> np.ndarray:
    return np.ptp(TASKS(X), axis=0)


def test_a_preference_finds_the_weighted_centre() -> None:
    weights = np.array([0.5, 0.3, 0.2])

    found = scalarized_optimum(TASKS, BOX, CORNERS, Scalarization(weights, FREE))

    shares = weights / ranges(CORNERS)  # tasks count by their range over the front
    np.testing.assert_allclose(found, shares @ CORNERS / shares.sum(), atol=1e-4)


def test_the_best_achievement_misses_alike_on_every_weighted_task() -> None:
    weights = np.array([0.5, 0.3, 0.2])
    scalarization = Scalarization(weights, FREE, achievement=True)

    found = scalarized_optimum(TASKS, BOX, CORNERS, scalarization)

    missing = weights * (TASKS(CORNERS).max(axis=0) - TASKS(found[None])[0])
    missing /= ranges(CORNERS)
    np.testing.assert_allclose(missing, missing[0], atol=1e-5)


def test_a_limit_is_kept_and_not_by_more_than_needed() -> None:
    lower = np.array([-np.inf, -0.1, -np.inf])
    scalarization = Scalarization(np.array([1.0, 0, 0]), lower)

    found = scalarized_optimum(TASKS, BOX, CORNERS, scalarization)

    # The nearest to the first centre on a circle around the second.
    towards = (CORNERS[0] - CORNERS[1]) / np.linalg.norm(CORNERS[0] - CORNERS[1])
    assert TASKS(found[None])[0, 1] >= -0.1
    np.testing.assert_allclose(found, CORNERS[1] + 0.1**0.5 * towards, atol=1e-4)


def test_where_a_point_of_the_front_is_the_best_there_is_none_better() -> None:
    for task in range(3):
        scalarization = Scalarization(np.eye(3)[task], FREE)
        assert scalarized_optimum(TASKS, BOX, CORNERS, scalarization) is None
    shares = 1 / ranges(CORNERS)
    front = np.vstack([CORNERS, shares @ CORNERS / shares.sum()])
    scalarization = Scalarization(np.ones(3) / 3, FREE)
    assert scalarized_optimum(TASKS, BOX, front, scalarization) is None


def test_limits_that_a_merge_keeps_are_met_though_no_point_keeps_them() -> None:
    m = 4
    centres = np.eye(m) + np.random.default_rng(0).normal(scale=0.15, size=(m, m))
    predict, box = bowls(centres), unit(m)
    with fronts_of_few_points(30):
        front, truth = (compute_front(predict, box, seed=seed) for seed in (0, 1))
    Y, width = predict(front), np.ptp(predict(front), axis=0)
    by_points = 0
    for optimum in predict(truth):
        lower = optimum - 0.02 * width
        scalarization = Scalarization(np.ones(m) / m, lower)

        found = scalarized_optimum(predict, box, front, scalarization)

        kept = (lower <= Y).all(axis=1).any()
        by_points += int(kept)
        assert kept if found is None else (predict(found[None])[0] >= lower).all()
    assert by_points < 0.9 * len(truth)  # else this test shows nothing
