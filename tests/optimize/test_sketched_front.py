"""The quick front, on quadratics whose front is known."""

from __future__ import annotations

import numpy as np
import pytest

from mergekit_map.optimize.front_refinement import non_dominated
from mergekit_map.optimize.nsga3 import Predict, sketch_front
from mergekit_map.surrogates.arrays import FloatArray, inside

# The best place of each task; by symmetry the front is what lies between them.
BEST = np.array([[0.8, 0.3, 0.5], [0.2, 0.7, 0.4], [0.5, 0.1, 0.9]])


def bowls(m: int, d: int) -> Predict:
    def predict(X: FloatArray) -> FloatArray:
        return -((X[:, None] - BEST[:m, :d]) ** 2).sum(axis=2)

    return predict


def unit(d: int) -> FloatArray:
    return np.array([[0.0, 1.0]] * d)


@pytest.mark.parametrize(("m", "d"), [(1, 2), (2, 2), (3, 2), (2, 3), (3, 3)])
def test_no_point_dominates_another_and_all_are_of_the_box(m: int, d: int) -> None:
    box = np.array([[0.1, 0.7]] * d)

    front = sketch_front(bowls(m, d), box)

    assert non_dominated(bowls(m, d)(front)).all()
    assert inside(front, box).all()


@pytest.mark.parametrize("d", [2, 3])
def test_points_are_near_the_front_and_all_along_it(d: int) -> None:
    front = sketch_front(bowls(2, d), unit(d))

    start, end = BEST[:2, :d]
    line = end - start
    along = (front - start) @ line / (line @ line)
    apart = np.linalg.norm(front - start - along[:, None] * line, axis=1)
    assert apart.max() < 0.06
    assert np.median(apart) < 0.02
    places = np.sort(along)
    assert places[0] < 0.02
    assert places[-1] > 0.98
    assert np.diff(places).max() < 0.1


@pytest.mark.parametrize(("m", "d"), [(1, 1), (2, 2), (3, 3)])
def test_the_best_of_each_task_is_among_them(m: int, d: int) -> None:
    front = sketch_front(bowls(m, d), unit(d))

    # A percent or two off: a loss of less than a thousandth of its range.
    assert bowls(m, d)(front).max(axis=0) == pytest.approx(0, abs=1e-3)


def test_one_task_has_one_best() -> None:
    assert len(sketch_front(bowls(1, 2), unit(2))) == 1


def test_what_all_merges_share_leaves_no_more_points_than_are_asked() -> None:
    front = sketch_front(lambda X: np.zeros((len(X), 2)), unit(2))

    assert 0 < len(front) <= 256 + 2
