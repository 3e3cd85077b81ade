"""Local searches: what they promise holds from any start."""

import numpy as np
import pytest

from mergekit_map.search.polish import maximise, push_to_front

CENTRES = np.array([[0.2, 0.3], [0.8, 0.4]])


def bowls(X: np.ndarray) -> np.ndarray:
    return -((X[:, None, :] - CENTRES) ** 2).sum(axis=2)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_best_of_a_weighted_sum_of_bowls_is_the_weighted_centre(
    weight: float,
) -> None:
    preference = np.array([weight, 1 - weight])

    best = maximise(bowls, preference, np.array([[0.9, 0.9], [0.0, 0.0]]))

    np.testing.assert_allclose(best, preference @ CENTRES, atol=1e-7)


def test_the_better_of_two_local_maxima_is_taken() -> None:
    def two_hills(X: np.ndarray) -> np.ndarray:
        return np.column_stack([(X[:, 0] - 0.4) ** 2])  # best at 1

    starts = np.array([[0.1], [0.9]])

    np.testing.assert_allclose(maximise(two_hills, np.ones(1), starts), [1.0])
    np.testing.assert_allclose(maximise(two_hills, np.ones(1), starts[:1]), [0.0])


@pytest.mark.parametrize("seed", range(10))
def test_a_pushed_point_loses_in_no_task_and_lies_on_the_segment(seed: int) -> None:
    point = np.random.default_rng(seed).uniform(size=2)

    pushed = push_to_front(bowls, point)

    assert (bowls(pushed[None]) - bowls(point[None])).min() > -1e-6
    along = (pushed - CENTRES[0]) @ (CENTRES[1] - CENTRES[0])
    share = along / ((CENTRES[1] - CENTRES[0]) ** 2).sum()
    assert -1e-4 <= share <= 1 + 1e-4
    on_segment = CENTRES[0] + share * (CENTRES[1] - CENTRES[0])
    np.testing.assert_allclose(pushed, on_segment, atol=1e-4)


def test_a_point_that_cannot_gain_stays_where_it_is() -> None:
    point = CENTRES.mean(axis=0)

    np.testing.assert_allclose(push_to_front(bowls, point), point, atol=1e-5)
