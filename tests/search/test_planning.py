"""First designs, refinement, and what a surrogate needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import LOSS, logged, make_study, run

from mergekit_map.errors import DesignError
from mergekit_map.search.nested_groups import (
    best_models,
    closest_pair,
    group_loss,
    scaled_losses,
)
from mergekit_map.search.planning import design
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement

IDEAL = {"a": np.array([0.8, 0.3]), "b": np.array([0.2, 0.7])}
NAN, INF = math.nan, math.inf


def study_of(**search: Any) -> Study:
    return make_study("xy", "ab", ("base",), LOSS, **{"remeasure": 0, **search})


def bowl(coefficients: Mapping[str, float], task: str) -> Measurement:
    """Measure a bowl per task."""
    away = np.array(list(coefficients.values())) - IDEAL[task]
    return Measurement(float(1 + (away**2).sum()), None, 1)


def test_refinement_stops_when_the_front_is_as_predicted(tmp_path: Path) -> None:
    run(study_of(evaluations=40), tmp_path, bowl)

    roles = [e.role for e in logged(tmp_path)]
    # A few rounds show that the quadratic is exact.
    assert 2 * 2 <= roles.count("refinement") <= 2 * 6
    assert len(roles) < 2 * 20


def test_says_what_is_missing() -> None:
    wanted = "6 parameters and needs 6 .* only 5.*at least 1 more.*surrogate: regulari"
    with pytest.raises(DesignError, match=wanted):
        design(study_of(evaluations=5, surrogate="quadratic"))
    with pytest.raises(DesignError, match=r"needs 3 .*at least 1 more$"):
        design(study_of(evaluations=2, surrogate="regularized"))


def test_each_task_belongs_to_the_model_that_is_best_on_it() -> None:
    Y = np.array([[0.9, 0.2, -3.0, 1.0], [0.5, 0.8, -1.0, 1.0], [0.1, 0.3, -0.5, 0.0]])

    # Models and tasks are independent; of equals the first one owns it.
    assert best_models(Y).tolist() == [0, 1, 2, 0]
    # A failed measurement is never the best.
    assert best_models(np.array([[NAN, NAN], [-9.0, NAN]])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "singles", "ideals", "losses"),
    [
        # An accuracy with the ideal 1, and a loss (turned) with the ideal 0.
        (
            [[0.6, -1.0], [1.0, -6.0]],
            [[0.6, -4.0], [0.2, -1.0]],
            [1.0, 0.0],
            [[0.5, 0.25], [0.0, 1.5]],
        ),
        # Without an ideal the best single model stands for it, and what was not
        # measured is as bad as the worst.
        ([[6.0], [3.0], [NAN]], [[2.0], [6.0], [NAN]], [INF], [[0.0], [0.75], [1.0]]),
        # A task that tells nothing apart has no loss.
        ([[1.0]], [[1.0], [1.0]], [1.0], [[0.0]]),
        ([[1.0]], [[1.0], [1.0]], [INF], [[0.0]]),
        ([[3.0]], [[NAN], [NAN]], [1.0], [[0.0]]),
        ([[3.0]], [[NAN], [NAN]], [INF], [[0.0]]),
    ],
)
def test_losses_go_from_the_ideal_to_the_worst_single_model(
    values: Any, singles: Any, ideals: Any, losses: Any
) -> None:
    found = scaled_losses(np.array(values), np.array(singles), np.array(ideals))

    assert found == pytest.approx(np.array(losses))


def test_the_loss_of_a_group_is_weighted_by_preference() -> None:
    losses = np.array([0.1, 0.7])

    assert group_loss(losses, np.array([0.2, 0.4])) == pytest.approx(0.5)
    assert group_loss(losses, np.array([0.0, 0.0])) == pytest.approx(0.4)


def test_the_pair_of_closest_losses_is_merged_first() -> None:
    assert closest_pair(np.array([0.9, 0.1, 0.5, 0.85])) == (0, 3)
    assert closest_pair(np.array([0.0, 1.0])) == (0, 1)
    # Of ties the first.
    assert closest_pair(np.array([0.0, 0.5, 0.0, 0.5])) == (0, 2)
