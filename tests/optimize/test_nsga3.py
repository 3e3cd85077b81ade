"""Fronts that are known: a point, a segment, a triangle, a sphere; and sketches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pymoo.problems import get_problem
from surrogate_data import Predict, bowls, sphere_front, unit

from mergekit_map.compare.indicators import hypervolume
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.optimize.nsga3 import approximate_front, compute_front
from mergekit_map.surrogates.arrays import inside


def slow(*arguments: int) -> Any:
    return pytest.param(*arguments, marks=pytest.mark.slow)


def quadratics(A: np.ndarray, b: np.ndarray) -> Predict:
    return lambda X: X @ b.T + np.einsum("ki,mij,kj->km", X, A, X) / 2


@pytest.mark.whole_front
def test_the_front_of_two_bowls_is_the_segment_between_their_centres() -> None:
    d = 8
    start, end = np.random.default_rng(d).uniform(0.1, 0.9, size=(2, d))

    front = compute_front(bowls(np.array([start, end])), unit(d), seed=0)

    along = (front - start) @ (end - start) / ((end - start) @ (end - start))
    nearest = start + np.clip(along, 0, 1)[:, None] * (end - start)
    np.testing.assert_allclose(front, nearest, rtol=0, atol=1e-4)
    assert len(front) >= 90
    # Both ends are there, and directions even in the metrics (squared distances)
    # leave no gap much above sqrt(1 / 100) along the segment.
    np.testing.assert_allclose([along.min(), along.max()], [0, 1], atol=2e-4)
    assert np.diff(np.sort(along)).max() < 0.15
    assert (np.diff(along) < 0).all()  # increasing in the first task


@pytest.mark.whole_front
@pytest.mark.parametrize("m", [2, 3, slow(4)])
def test_the_non_convex_front_of_dtlz2_is_dense_exact_and_whole(m: int) -> None:
    problem = get_problem("dtlz2", n_var=m + 2, n_obj=m)
    asked = []

    def predict(X: np.ndarray) -> np.ndarray:
        asked.append(len(X))
        return -problem.evaluate(X)

    losses = problem.evaluate(compute_front(predict, unit(m + 2), seed=0))

    # It is the part of the unit sphere where no loss is negative.
    off = np.abs(np.linalg.norm(losses, axis=1) - 1)
    assert (off > 1e-3).mean() < 0.02  # corners, where a task is flat
    assert hypervolume(-losses, -np.vstack([np.eye(m), sphere_front(3000, m)])) > 0.98
    np.testing.assert_allclose(losses.min(axis=0), 0, atol=1e-6)
    assert len(losses) < 500  # a recipe is written for each
    # What makes a search fast: few calls, of many points.
    assert len(asked) < 300
    assert sum(asked) < 300_000


@pytest.mark.parametrize("d", [1, 3, 10])
def test_one_task_has_one_best_point(d: int) -> None:
    centre = np.random.default_rng(d).uniform(size=(1, d))
    centre[0, 0] = 1.7  # out of the box: the best is on its border

    front = compute_front(bowls(centre), unit(d), seed=0)

    np.testing.assert_allclose(front, np.minimum(centre, 1), atol=1e-6)


@pytest.mark.whole_front
@pytest.mark.parametrize(("d", "m"), [(1, 2), slow(2, 12), slow(6, 6)])
def test_every_front_is_distinct_non_dominated_and_inside(d: int, m: int) -> None:
    rng = np.random.default_rng(d + m)
    A = rng.normal(size=(m, d, d))
    tasks = quadratics(A + A.transpose(0, 2, 1), rng.normal(size=(m, d)))
    bounds = np.column_stack([np.full(d, -0.5), np.linspace(1, 2, d)])
    asked = []

    def predict(X: np.ndarray) -> np.ndarray:
        asked.append(inside(X, bounds).all())
        return tasks(X)

    front = compute_front(predict, bounds, seed=0)

    assert asked
    assert all(asked)
    assert inside(front, bounds).all()
    assert len(np.unique(front, axis=0)) == len(front)
    Y = tasks(front)
    assert non_dominated(Y).all()
    sampled = tasks(np.random.default_rng(1).uniform(*bounds.T, size=(3000, d)))
    # These tasks have many local optima, so a few points may be only nearly best.
    behind = (sampled[:, None] - Y).min(axis=2).max(axis=0)
    loss = behind / np.ptp(sampled, axis=0).max()
    assert (loss > 1e-3).mean() < 0.05
    assert loss.max() < 0.02
    assert (Y.max(axis=0) >= sampled.max(axis=0)).all()


def test_the_best_of_each_task_is_that_of_an_exhaustive_search() -> None:
    # A convex task is at its best in a corner of the box.
    d = m = 8
    rng = np.random.default_rng(d)
    A = rng.normal(size=(m, d, d))
    predict = quadratics(A @ A.transpose(0, 2, 1), 3 * rng.normal(size=(m, d)))

    front = compute_front(predict, unit(d), seed=0)

    best = predict(np.array(list(np.ndindex(*[2] * d)), dtype=float)).max(axis=0)
    np.testing.assert_allclose(predict(front).max(axis=0), best, rtol=1e-6)


@pytest.mark.parametrize("rounding", [0.0, 1e-7])
def test_a_constant_task_does_not_widen_the_front(rounding: float) -> None:
    centre = np.array([[0.3, 0.6]])

    def predict(X: np.ndarray) -> np.ndarray:
        constant = 5e5 + rounding * np.sin(5 * X.sum(axis=1))
        return np.column_stack([bowls(centre)(X)[:, 0], constant])

    front = compute_front(predict, unit(2), seed=0)

    np.testing.assert_allclose(front, centre, atol=1e-5)


def test_units_and_the_box_do_not_matter() -> None:
    tasks = bowls(np.array([[0.2, 0.3], [0.7, 0.9]]))
    scale, lower, width = np.array([[1e-6, 1e6], [-5, 100], [10, 0.1]])

    plain = compute_front(tasks, unit(2), seed=0)
    box = np.column_stack([lower, lower + width])
    moved = compute_front(lambda X: tasks((X - lower) / width) * scale + 3, box, seed=0)

    back = (moved - lower) / width
    spread = np.linalg.norm(plain[:, None] - back, axis=2)
    assert spread.min(axis=0).max() < 0.15
    assert spread.min(axis=1).max() < 0.15
    np.testing.assert_allclose(back[[0, -1]], plain[[0, -1]], atol=1e-3)


def test_of_equal_points_all_are_non_dominated_and_nan_is_dominated() -> None:
    Y = np.array([[np.nan, 9], [1, 2], [np.nan, np.nan], [2, 1], [1, 2], [1, 1]])

    assert non_dominated(Y).tolist() == [False, True, False, True, True, False]
    assert non_dominated(Y[:1]).tolist() == [False]


@pytest.mark.parametrize(("m", "d"), [(1, 2), (2, 2), (3, 3)])
def test_no_point_of_a_sketch_is_dominated_and_the_best_are_in(m: int, d: int) -> None:
    best = np.array([[0.8, 0.3, 0.5], [0.2, 0.7, 0.4], [0.5, 0.1, 0.9]])  # of each task
    tasks, box = bowls(best[:m, :d]), np.array([[0.1, 0.7]] * d)

    front, inner = approximate_front(tasks, unit(d)), approximate_front(tasks, box)

    for found in (front, inner):
        assert non_dominated(tasks(found)).all()
    assert inside(inner, box).all()
    # A percent or two off: a loss of less than a thousandth of its range.
    assert tasks(front).max(axis=0) == pytest.approx(0, abs=1e-3)
    assert len(front) == 1 or m > 1


def test_a_sketch_of_what_all_merges_share_has_no_more_points_than_are_asked() -> None:
    front = approximate_front(lambda X: np.zeros((len(X), 2)), unit(2))

    assert 0 < len(front) <= 256 + 2
