"""The order of nested MAP, on numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mergekit_map.search.nested_groups import (
    best_models,
    closest_pair,
    group_loss,
    scaled_losses,
)

NAN, INF = math.nan, math.inf


def test_each_task_belongs_to_the_model_that_is_best_on_it() -> None:
    Y = np.array([[0.9, 0.2, -3.0, 1.0], [0.5, 0.8, -1.0, 1.0], [0.1, 0.3, -0.5, 0.0]])

    # Models and tasks are independent; of equals the first one owns it.
    assert best_models(Y).tolist() == [0, 1, 2, 0]


def test_a_failed_measurement_is_never_the_best() -> None:
    assert best_models(np.array([[NAN, NAN], [-9.0, NAN]])).tolist() == [1, 0]


def test_losses_go_from_the_ideal_to_the_worst_single_model() -> None:
    # An accuracy with the ideal 1, and a loss (turned) with the ideal 0.
    Y = np.array([[0.6, -4.0], [0.2, -1.0]])

    losses = scaled_losses(np.array([[0.6, -1.0], [1.0, -6.0]]), Y, np.array([1.0, 0]))

    assert losses == pytest.approx(np.array([[0.5, 0.25], [0.0, 1.5]]))


def test_where_there_is_no_ideal_the_best_single_model_stands_for_it() -> None:
    Y = np.array([[2.0], [6.0], [NAN]])

    losses = scaled_losses(np.array([[6.0], [3.0], [NAN]]), Y, np.array([INF]))

    # What was not measured is as bad as the worst.
    assert losses[:, 0].tolist() == [0, 0.75, 1]


def test_losses_do_not_depend_on_the_unit_of_a_task() -> None:
    rng = np.random.default_rng(0)
    Y, values = rng.random((4, 3)), rng.random((5, 3))
    scale, shift = np.array([1e-6, 3.0, 1e9]), np.array([4.0, -2.0, 7.0])

    losses = scaled_losses(values, Y, np.array([1.0, 2.0, INF]))
    other = scaled_losses(
        values * scale + shift,
        Y * scale + shift,
        np.array([1.0, 2.0, INF]) * scale + shift,
    )

    np.testing.assert_allclose(other, losses, rtol=1e-6)


@pytest.mark.parametrize("ideal", [1.0, INF])
def test_a_task_that_tells_nothing_apart_has_no_loss(ideal: float) -> None:
    alike = np.array([[1.0], [1.0]])

    assert scaled_losses(np.array([[1.0]]), alike, np.array([ideal])) == [[0]]
    unmeasured = np.full((2, 1), NAN)
    assert scaled_losses(np.array([[3.0]]), unmeasured, np.array([ideal])) == [[0]]


def test_the_loss_of_a_group_is_weighted_by_preference() -> None:
    losses = np.array([0.1, 0.7])

    assert group_loss(losses, np.array([0.2, 0.4])) == pytest.approx(0.5)
    assert group_loss(losses, np.array([0.0, 0.0])) == pytest.approx(0.4)


def test_the_pair_of_closest_losses_is_merged_first() -> None:
    assert closest_pair(np.array([0.9, 0.1, 0.5, 0.85])) == (0, 3)
    assert closest_pair(np.array([0.0, 1.0])) == (0, 1)
    # Of ties the first.
    assert closest_pair(np.array([0.0, 0.5, 0.0, 0.5])) == (0, 2)
