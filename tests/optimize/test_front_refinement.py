"""Local searches: what they promise holds from any start."""

import numpy as np
import pytest

from mergekit_map.optimize.front_refinement import maximise, pareto_newton

CENTRES = np.array([[0.2, 0.3], [0.8, 0.4]])


def bowls(X: np.ndarray) -> np.ndarray:
    return -((X[:, None, :] - CENTRES) ** 2).sum(axis=2)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_best_of_a_weighted_sum_of_bowls_is_the_weighted_centre(
    weight: float,
) -> None:
    preference = np.array([weight, 1 - weight])

    tops = maximise(bowls, np.tile(preference, (2, 1)), np.array([[0.9, 0.9], [0, 0]]))

    np.testing.assert_allclose(tops, np.tile(preference @ CENTRES, (2, 1)), atol=1e-7)


def test_every_start_climbs_to_its_own_maximum() -> None:
    def two_hills(X: np.ndarray) -> np.ndarray:
        return np.column_stack([(X[:, 0] - 0.4) ** 2])  # best at 1

    tops = maximise(two_hills, np.ones((2, 1)), np.array([[0.1], [0.9]]))

    np.testing.assert_allclose(tops, [[0.0], [1.0]])


def test_pushed_points_lie_on_the_segment_between_the_centres() -> None:
    points = np.random.default_rng(0).uniform(size=(50, 2))

    pushed = pareto_newton(bowls, points, 30)

    across = CENTRES[1] - CENTRES[0]
    share = (pushed - CENTRES[0]) @ across / (across**2).sum()
    assert share.min() > -1e-4
    assert share.max() < 1 + 1e-4
    on_segment = CENTRES[0] + share[:, None] * across
    np.testing.assert_allclose(pushed, on_segment, atol=1e-6)
    assert np.ptp(share) > 0.5  # they are not all driven to one place


def test_the_side_of_the_box_that_holds_a_point_is_let_go_again() -> None:
    # The slope at the corner leaves the box by the first coefficient alone.
    centre = np.array([[-0.4, 0.7, 0.5]])

    def tasks(X: np.ndarray) -> np.ndarray:
        apart = X[:, None] - centre
        return -(apart**2).sum(axis=2) - 0.9 * apart[..., 0] * apart[..., 1]

    pushed = pareto_newton(tasks, np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), 20)

    # With the first at 0 the second is best at 0.7 - 0.45 * 0.4.
    np.testing.assert_allclose(pushed, [[0.0, 0.52, 0.5]] * 2, atol=1e-7)
