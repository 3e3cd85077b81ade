"""Sums, scales and shares, on numbers that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mergekit_map.compare.indicators import (
    as_they_are,
    best_merges,
    best_rows,
    by_ideal_and_nadir,
    front_of,
    mean_and_std,
    preferred_models,
    score_front,
    weighted_sums,
)
from mergekit_map.errors import EvaluationError

# Two ends, one in between, one dominated, one that failed on a task.
MEASURED = np.array([[0.0, 8.0], [4.0, 0.0], [3.0, 6.0], [1.0, 1.0], [math.nan, 9.0]])
FRONT = [[0.0, 8.0], [3.0, 6.0], [4.0, 0.0]]


def test_the_reference_is_what_nothing_dominates_each_once() -> None:
    front = front_of(MEASURED[:3], MEASURED)

    np.testing.assert_array_equal(front, FRONT)


def test_says_so_where_everything_failed() -> None:
    with pytest.raises(EvaluationError, match="all 2 merges failed on some task"):
        front_of(np.array([[1.0, math.nan], [math.nan, 2.0]]))


def test_tasks_are_scaled_by_the_ends_of_the_reference() -> None:
    scale = by_ideal_and_nadir(np.array(FRONT))

    scaled = scale.apply(np.array([[3.0, 6.0], [6.0, -8.0]]))

    np.testing.assert_allclose(scaled, [[0.75, 0.75], [1.5, -1.0]])


def test_every_preference_gets_the_merge_with_the_best_sum() -> None:
    scale = by_ideal_and_nadir(np.array(FRONT))
    preferences = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])

    assert best_merges(MEASURED, preferences, scale).tolist() == [1, 2, 0]
    twice = np.vstack([MEASURED, MEASURED])  # of equal ones the first
    assert best_merges(twice, preferences, scale).tolist() == [1, 2, 0]
    sums = weighted_sums(best_rows(MEASURED, preferences, scale), preferences, scale)
    np.testing.assert_allclose(sums.sums, [1.0, 0.75, 1.0])


def test_distances_go_from_the_front_to_the_direct_search_and_back() -> None:
    reference = np.array([[0.0, 10.0], [2.0, 0.0]])  # so that scales are 2 and 10
    front = np.array([[1.0, 5.0]])
    direct = np.array([[1.0, 0.0], [1.0, -15.0]])

    spent = {"evaluations": 7, "documents": 70, "charged": 8}
    scores = score_front(front, reference, direct, **spent)

    assert vars(scores).items() >= spent.items()
    # One point, 0.5 from the nearest; two points, 0.5 and 2 from the only one.
    assert scores.gd_direct == pytest.approx(0.5)
    assert scores.igd_direct == pytest.approx(math.hypot(0.5, 2) / 2)
    # One point, sqrt(0.5) from both ends; both as far from it.
    assert scores.gd == pytest.approx(math.sqrt(0.5))
    assert scores.igd == pytest.approx(1 / 2)


def test_what_failed_everywhere_has_no_sum() -> None:
    failed = np.full((3, 2), math.nan)

    rows = best_rows(failed, np.ones((4, 2)), as_they_are(2))

    assert rows.shape == (4, 2)
    assert math.isnan(mean_and_std(rows.sum(axis=1)).mean)
    assert math.isnan(mean_and_std([]).std)


def test_a_model_has_the_shares_of_all_the_tasks_it_is_best_at() -> None:
    shares = preferred_models(np.array([[0.2, 0.3, 0.5]]), np.array([1, 0, 1]), 3)

    np.testing.assert_allclose(shares, [[0.3, 0.7, 0.0]])
