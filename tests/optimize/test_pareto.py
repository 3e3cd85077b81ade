"""Gains of hypervolume, against volumes that are counted box by box."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from mergekit_map.optimize.front_refinement import gained, gains
from mergekit_map.optimize.front_refinement import volume as exact
from mergekit_map.surrogates.arrays import FloatArray

BELOW = -0.1  # the corner that volumes are counted from


def volume(Y: FloatArray) -> float:
    """Count the union of the boxes below the rows of Y (n, m), by inclusion."""
    total = 0.0
    for size in range(1, len(Y) + 1):
        for rows in combinations(range(len(Y)), size):
            sides = np.maximum(Y[list(rows)].min(axis=0) - BELOW, 0)
            total += (-1) ** (size + 1) * float(sides.prod())
    return total


def some(n: int, m: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng([n, m, seed]).uniform(-0.3, 1.2, size=(n, m))


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_gain_is_the_volume_with_a_merge_less_that_without(m: int, n: int) -> None:
    known = some(n, m)
    Y = np.vstack([some(5, m, seed=1), np.full(m, 1.3)])

    found = gains(Y, known)

    expected = [volume(np.vstack([known, row])) - volume(known) for row in Y]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert expected[-1] > 0


def test_a_gain_is_told_as_a_share() -> None:
    known = np.array([[0.4, 0.4]])
    better = np.array([[0.9, 0.4]])

    assert gained(better, known) == pytest.approx(1.0 / 0.5 - 1)
    assert gained(known, better) == 0
    assert gained(known, np.empty((0, 2))) >= 0


def test_with_many_tasks_gains_are_those_of_the_boxes_nearly() -> None:
    known, Y = np.abs(some(3, 7)), np.abs(some(5, 7, seed=1))

    found = gains(Y, known)

    before = volume(known)
    exact = [volume(np.vstack([known, row])) - before for row in Y]
    np.testing.assert_allclose(found, exact, atol=0.1 * max(exact))
    assert (found > 0).all()
    assert not gains(known, known).any()
    assert not gains(known - 0.1, known).any()


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6])
def test_gains_are_differences_of_volumes_to_the_last_bit(m: int) -> None:
    rng = np.random.default_rng(m)
    known, Y = rng.normal(0.3, 0.3, (7, m)), rng.normal(0.5, 0.3, (9, m))

    there = exact(known, -0.1)
    apart = [exact(np.vstack([known, row]), -0.1) - there for row in Y]

    assert gains(Y, known).tolist() == apart
    assert gains(Y, known[:0]).tolist() == [exact(row[None], -0.1) for row in Y]
