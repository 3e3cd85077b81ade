"""Fronts are dense and exact, held against an exhaustive search of another kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mergekit_map.compare.indicators import hypervolume
from mergekit_map.optimize.front_refinement import non_dominated
from mergekit_map.optimize.nsga3 import compute_front

Predict = Callable[[np.ndarray], np.ndarray]

N_EXHAUSTIVE = 3000


def slow(*arguments: Any) -> Any:
    return pytest.param(*arguments, marks=pytest.mark.slow)


def bowls(d: int, m: int, seed: int) -> Predict:
    """Losses like those of models that are each at its best near its own weight 1."""
    rng = np.random.default_rng([seed, d, m])
    centres = np.eye(m, d) + rng.normal(scale=0.15, size=(m, d))
    A = rng.normal(scale=0.5, size=(m, d, d))
    A = A @ A.transpose(0, 2, 1) + np.eye(d) * rng.uniform(0.3, 1.5, size=(m, 1, 1))

    def predict(X: np.ndarray) -> np.ndarray:
        apart = X[:, None] - centres
        return -np.einsum("kmi,mij,kmj->km", apart, A, apart)

    return predict


def waves(d: int, m: int, seed: int) -> Predict:
    """Bowls with waves, behind sigmoids: not quadratic, nor of one hill."""
    rng = np.random.default_rng([seed, d, m])
    across, phases = rng.normal(scale=4, size=(d, m)), rng.uniform(0, 6, size=m)
    tasks = bowls(d, m, seed)
    return lambda X: np.tanh(tasks(X) / 2 + 0.05 * np.sin(X @ across + phases))


def exhaustive(tasks: Predict, d: int) -> np.ndarray:
    """Find N_EXHAUSTIVE metrics of a front by random steps that grow ever shorter."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100_000, d))
    Y = tasks(X)
    for length in np.geomspace(0.1, 1e-4, 30):
        keep = non_dominated(Y)
        X, Y = X[keep], Y[keep]
        some = rng.permutation(len(X))[: 4 * N_EXHAUSTIVE]
        some = np.union1d(some, Y.argmax(axis=0))
        X, Y = X[some], Y[some]
        parents = X[rng.integers(len(X), size=15_000)]
        steps = rng.normal(scale=length, size=parents.shape)
        steps *= rng.uniform(size=parents.shape) < 0.7
        children = np.clip(parents + steps, 0, 1)
        X, Y = np.vstack([X, children]), np.vstack([Y, tasks(children)])
    Y = Y[non_dominated(Y)]
    few = np.union1d(rng.permutation(len(Y))[:N_EXHAUSTIVE], Y.argmax(axis=0))
    return Y[few]


@pytest.mark.whole_front
@pytest.mark.parametrize("family", [bowls, waves])
@pytest.mark.parametrize(
    ("d", "m"), [(2, 2), slow(4, 2), slow(2, 3), (3, 3), slow(3, 4), slow(4, 4)]
)
def test_a_front_is_dense_exact_and_whole(
    family: Callable[[int, int, int], Predict], d: int, m: int
) -> None:
    tasks = family(d, m, 0)
    dense = exhaustive(tasks, d)
    asked = []

    def predict(X: np.ndarray) -> np.ndarray:
        asked.append(len(X))
        return tasks(X)

    front = tasks(compute_front(predict, np.tile([0.0, 1.0], (d, 1)), m, seed=0))

    assert hypervolume(front, dense) > 0.99
    width = np.ptp(dense, axis=0)
    assert ((dense.max(axis=0) - front.max(axis=0)) / width).max() < 1e-7
    behind = ((dense[:, None] - front) / width).min(axis=2).max(axis=0)
    assert (behind > 1e-6).mean() < 0.02  # waves leave some on local fronts
    assert len(front) < 500  # a recipe is written for each
    # What makes a search fast: few calls, of many points.
    assert len(asked) < 300
    assert sum(asked) < 300_000
