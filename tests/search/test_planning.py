"""First designs, refinement, and what a surrogate needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fakes import LOSS, make_study

from mergekit_map.errors import DesignError
from mergekit_map.search.nested_groups import best_models, scaled_losses
from mergekit_map.search.planning import design
from mergekit_map.search.study import Study

NAN, INF = math.nan, math.inf


def study_of(**search: Any) -> Study:
    return make_study("xy", "ab", ("base",), LOSS, **{"remeasure": 0, **search})


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
