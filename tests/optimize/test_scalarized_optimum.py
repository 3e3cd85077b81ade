"""The merge that is asked for: in closed form on bowls, and within limits."""

import numpy as np
import pytest
from surrogate_data import unit

from mergekit_map.optimize.nsga3 import compute_front
from mergekit_map.optimize.scalarized_optimum import Wish, best_merge

# As a front: the corners of the triangle, and nothing of what is between.
CORNERS = np.array([[0.2, 0.3], [0.8, 0.4], [0.4, 0.9]])
BOX = unit(2)
FREE = np.full(3, -np.inf)


def bowls(X: np.ndarray) -> np.ndarray:
    return -((X[:, None] - CORNERS) ** 2).sum(axis=2)


def ranges(X: np.ndarray) -> np.ndarray:
    return np.ptp(bowls(X), axis=0)


def random_bowls(m: int, seed: int) -> tuple[object, np.ndarray]:
    rng = np.random.default_rng([seed, m])
    centres = np.eye(m) + rng.normal(scale=0.15, size=(m, m))
    A = rng.normal(scale=0.5, size=(m, m, m))
    A = A @ A.transpose(0, 2, 1) + np.eye(m)

    def predict(X: np.ndarray) -> np.ndarray:
        apart = X[:, None] - centres
        return -np.einsum("kmi,mij,kmj->km", apart, A, apart)

    return predict, unit(m)


def test_a_preference_finds_the_weighted_centre() -> None:
    weights = np.array([0.5, 0.3, 0.2])

    found = best_merge(bowls, BOX, CORNERS, Wish(weights, FREE))

    shares = weights / ranges(CORNERS)  # tasks count by their range over the front
    assert found is not None
    np.testing.assert_allclose(found, shares @ CORNERS / shares.sum(), atol=1e-4)


def test_the_best_achievement_misses_alike_on_every_weighted_task() -> None:
    weights = np.array([0.5, 0.3, 0.2])
    wish = Wish(weights, FREE, achievement=True)

    found = best_merge(bowls, BOX, CORNERS, wish)

    assert found is not None
    missing = weights * (bowls(CORNERS).max(axis=0) - bowls(found[None])[0])
    missing /= ranges(CORNERS)
    np.testing.assert_allclose(missing, missing[0], atol=1e-5)


def test_a_limit_is_kept_and_not_by_more_than_needed() -> None:
    lower = np.array([-np.inf, -0.1, -np.inf])

    found = best_merge(bowls, BOX, CORNERS, Wish(np.array([1.0, 0, 0]), lower))

    # The nearest to the first centre on a circle around the second.
    towards = (CORNERS[0] - CORNERS[1]) / np.linalg.norm(CORNERS[0] - CORNERS[1])
    assert found is not None
    assert bowls(found[None])[0, 1] >= -0.1
    np.testing.assert_allclose(found, CORNERS[1] + 0.1**0.5 * towards, atol=1e-4)


def test_a_limit_that_nothing_keeps_is_approached() -> None:
    lower = np.array([0.5, -np.inf, -np.inf])  # the best is 0

    found = best_merge(bowls, BOX, CORNERS[1:], Wish(np.ones(3) / 3, lower))

    assert found is not None
    np.testing.assert_allclose(found, CORNERS[0], atol=1e-4)


def test_where_a_point_of_the_front_is_the_best_there_is_none_better() -> None:
    for task in range(3):
        wish = Wish(np.eye(3)[task], FREE)
        assert best_merge(bowls, BOX, CORNERS, wish) is None
    shares = 1 / ranges(CORNERS)
    best = (shares @ CORNERS / shares.sum())[None]
    wish = Wish(np.ones(3) / 3, FREE)
    assert best_merge(bowls, BOX, np.vstack([CORNERS, best]), wish) is None


@pytest.mark.parametrize("m", [3, 8])
def test_limits_that_a_merge_keeps_are_met_though_no_point_keeps_them(m: int) -> None:
    predict, box = random_bowls(m, seed=0)
    front = compute_front(predict, box, m, seed=0, n_points=40)
    truth = compute_front(predict, box, m, seed=1, n_points=40)
    Y, width = predict(front), np.ptp(predict(front), axis=0)
    by_points = 0
    for optimum in predict(truth):
        lower = optimum - 0.02 * width

        found = best_merge(predict, box, front, Wish(np.ones(m) / m, lower))

        kept = (lower <= Y).all(axis=1).any()
        by_points += int(kept)
        assert kept if found is None else (predict(found[None])[0] >= lower).all()
    assert by_points < 0.9 * len(truth)  # else this test shows nothing


@pytest.mark.parametrize("m", [2, 4])
def test_no_merge_of_the_box_fulfils_a_wish_better(m: int) -> None:
    predict, box = random_bowls(m, seed=2)
    front = compute_front(predict, box, m, seed=0, n_points=20)
    worst, width = predict(front).min(axis=0), np.ptp(predict(front), axis=0)
    rng = np.random.default_rng(0)
    everywhere = (predict(rng.uniform(size=(20_000, m))) - worst) / width
    for achievement in (False, True):
        wish = Wish(rng.dirichlet(np.ones(m)), np.full(m, -np.inf), achievement)

        found = best_merge(predict, box, front, wish)

        known = front if found is None else found[None]
        score = wish.score((predict(known) - worst) / width).max()
        assert score > wish.score(everywhere).max() - 1e-4
