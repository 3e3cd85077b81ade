"""The ends of the box: who lies there, and what a larger box would gain."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from mergekit_map.results.front import Border
from mergekit_map.search.refinement import find_border, hypervolume_gain
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.surrogate import Surrogate
from mergekit_map.types import Metric

SCORE = Metric(higher_is_better=True, lower=None, upper=None)
LOSS = Metric(higher_is_better=False, lower=None, upper=None)
BOX = np.array([[0.0, 1.0], [-0.5, 0.5]])
REAL = Link(-math.inf, math.inf)


def surrogate(f: Callable[[FloatArray], FloatArray], box: FloatArray) -> Surrogate:
    """Fit a quadratic function exactly."""
    axes = [np.linspace(*ends, 4) for ends in box]
    X = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(box))
    return fit_surrogate(X, f(X), stderr=None, link=REAL, bounds=box)


def bowl(*ideal: float) -> Callable[[FloatArray], FloatArray]:
    return lambda X: -np.square(X - np.array(ideal)).sum(axis=1)


def borders(
    tasks: dict[str, tuple[Metric, Surrogate]], X: FloatArray, anchors: FloatArray
) -> list[Border]:
    metrics = {name: metric for name, (metric, _) in tasks.items()}
    surrogates = {name: fitted for name, (_, fitted) in tasks.items()}
    names = ("de", "fr")[: X.shape[1]]
    return list(find_border(surrogates, metrics, names, X, anchors))


@pytest.mark.parametrize("metric", [SCORE, LOSS])
def test_of_one_task_the_gain_is_the_share_of_its_range(metric: Metric) -> None:
    """-(c - 1.3)²: from -1.69 at the base to -0.09 at c = 1, and -0.01 at c = 1.2."""
    box = np.array([[0.0, 1.0]])
    fitted = surrogate(lambda X: metric.sign * bowl(1.3)(X), box)

    (found,) = borders({"t": (metric, fitted)}, np.array([[1.0]]), np.zeros((1, 1)))

    assert found == Border(coefficient="de", end=1, points=1, beyond=1.2, gain=0.05)


def test_ends_are_told_where_points_lie_and_more_is_better() -> None:
    """One task wants more of de, the other less of fr than the box has."""
    tasks = {
        "one": (SCORE, surrogate(bowl(1.2, 0.0), BOX)),
        "two": (SCORE, surrogate(bowl(0.5, -0.6), BOX)),
    }
    t = np.linspace(0, 1, 5)[:, None]
    X = np.clip((1 - t) * [1.2, 0.0] + t * [0.5, -0.6], *BOX.T)
    anchors = np.array([[0.0, 0.5], [np.nan, np.nan]])

    found = borders(tasks, X, anchors)

    assert [(b.coefficient, b.end, b.points) for b in found] == [
        ("de", 1.0, 2),
        ("fr", -0.5, 1),
    ]
    assert [b.beyond for b in found] == [1.2, -0.7]
    assert all(0 < b.gain < 0.2 for b in found)


def test_the_gain_is_a_share_of_the_volume_whatever_the_units() -> None:
    """Two boxes, of which the second sticks out of the first to one side."""
    Y, more = np.array([[1.0, 1.0]]), np.array([[1.5, 0.5]])

    assert hypervolume_gain(Y, more) == pytest.approx(0.25)
    units = np.array([1e-3, 1e5])
    assert hypervolume_gain(Y * units, more * units) == pytest.approx(0.25)


@pytest.mark.parametrize("m", [1, 3, 8])
def test_boxes_of_any_number_of_tasks_have_the_volume_of_a_box(m: int) -> None:
    Y = np.ones((1, m))

    units = 10.0 ** np.arange(m)

    gain = hypervolume_gain(Y * units, Y * units * 1.02)

    assert gain == pytest.approx(1.02**m - 1, rel=1e-3)
    assert hypervolume_gain(Y, Y / 2) == pytest.approx(0, abs=1e-9)


def test_a_front_without_volume_gains_nothing() -> None:
    flat = np.array([[0.0, 1.0], [0.0, 0.5]])

    assert hypervolume_gain(flat, flat + 1) == 0
