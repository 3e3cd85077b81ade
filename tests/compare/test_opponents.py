"""Every opponent on two bowls whose front is the segment between their centres."""

import logging
import random
import sys
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from surrogate_data import bowls

from mergekit_map.compare.indicators import hypervolume
from mergekit_map.compare.opponents import (
    FAILURE_MARGIN,
    NOTHING_SEEN,
    OPPONENTS,
    PACKAGES,
    WEIGHING,
    Budget,
    Opponent,
    check_opponents,
)
from mergekit_map.errors import ConfigError

Array = np.ndarray
CENTRES = np.array([[0.2, 0.3, 0.5], [0.8, 0.4, 0.1]])
TASKS = bowls(CENTRES)
SEGMENT = CENTRES[0] + np.linspace(0, 1, 50)[:, None] * (CENTRES[1] - CENTRES[0])
BOX = np.array([[0.0, 1.0], [0.0, 2.0], [-1.0, 1.0]])
# The Bayesian one is slow: its budgets are the least that leave its start.
BUDGETS = {"qlognehvi": 10}
BUDGET = 50
CHEAP = [name for name in OPPONENTS if name != "qlognehvi"]
INSTALLED = [n for n in CHEAP if n not in PACKAGES or find_spec(PACKAGES[n])]


def opponent(name: str) -> Opponent:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return OPPONENTS[name]


def run(name: str, seed: int = 0, budget: int = 0, failing: int = 0) -> Array:
    """Return what an opponent evaluates; every ``failing``-th point fails."""
    points: list[Array] = []

    def evaluate(X: Array) -> Array:
        Y, numbers = TASKS(X), len(points) + np.arange(len(X))
        points.extend(X.copy())
        if failing:
            Y[numbers % failing == 0] = np.nan
        return Y

    evaluations = Budget(evaluate, BOX, 2, budget or BUDGETS.get(name, BUDGET))
    opponent(name)(evaluations, np.random.default_rng(seed))
    return np.array(points)


@pytest.mark.parametrize("name", OPPONENTS)
def test_an_opponent_spends_its_budget_in_the_box_and_nothing_else(name: str) -> None:
    first = run(name)  # imports happen once and may set what they like
    filters, level = list(warnings.filters), logging.getLogger("optuna").level
    torch.manual_seed(1)  # what others drew before does not matter
    states = np.random.get_state()[1], random.getstate(), torch.get_rng_state()  # noqa: NPY002
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)

    try:
        again = run(name)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)

    assert len(first) == BUDGETS.get(name, BUDGET)
    assert (first >= BOX[:, 0]).all()
    assert (first <= BOX[:, 1]).all()
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert random.getstate() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert list(warnings.filters) == filters
    assert logging.getLogger("optuna").level == level
    failed = run(name, failing=3)
    assert len(failed) == BUDGETS.get(name, BUDGET)
    assert np.isfinite(failed).all()


def test_cheap_opponents_keep_small_budgets_and_draw_by_their_generator() -> None:
    for name in INSTALLED:
        for budget in (1, 17):
            assert len(run(name, budget=budget)) == budget, name
        assert len(run(name, failing=1)) == BUDGET, name
        assert not np.array_equal(run(name), run(name, seed=1)), name


def test_cheap_opponents_search_a_single_coefficient_and_a_single_task() -> None:
    for name in INSTALLED:
        for m in (2, 1)[: 1 if name in WEIGHING else 2]:
            tasks = bowls(np.array([[0.2], [0.7]])[:m])
            budget = Budget(tasks, np.array([[0.0, 1.0]]), m, 30)
            opponent(name)(budget, np.random.default_rng(0))
            assert budget.Y.shape == (30, m), name


def test_opponents_that_adapt_end_nearer_to_the_front_than_they_began() -> None:
    def distance(points: Array) -> float:
        gaps = np.linalg.norm(points[:, None] - SEGMENT, axis=2).min(axis=1)
        return float(gaps.mean())

    for name in {*INSTALLED} - {"random", "sobol", "grid"}:
        points = [run(name, seed, budget=100) for seed in range(3)]
        early = np.mean([distance(p[:20]) for p in points])
        assert np.mean([distance(p[-20:]) for p in points]) < 0.6 * early, name


@pytest.mark.slow
def test_the_bayesian_opponent_finds_the_ends_of_a_front_that_spans_the_box() -> None:
    pytest.importorskip("botorch")
    ends = np.array([[0.05, 0.1], [0.9, 0.95]])
    distances = bowls(ends)
    budget = Budget(distances, np.array([[0.0, 1.0], [0.0, 1.0]]), 2, 18)

    OPPONENTS["qlognehvi"](budget, np.random.default_rng(3))

    segment = ends[0] + np.linspace(0, 1, 50)[:, None] * (ends[1] - ends[0])
    # With a reference point inferred from the evaluated points alone it is 0.91.
    assert hypervolume(budget.Y, distances(segment)) > 0.935


def test_a_grid_is_shuffled_and_filled_with_other_points() -> None:
    points = run("grid", budget=30)  # 27 of them are a grid of 3 levels

    pairs = zip(points.T, [np.linspace(*ends, 3) for ends in BOX], strict=True)
    on_grid = np.all([np.isin(column, level) for column, level in pairs], axis=0)
    assert on_grid[:27].all()
    assert not on_grid[27:].any()
    assert len(np.unique(points[:27], axis=0)) == 27
    assert not np.array_equal(points[:27], np.unique(points[:27], axis=0))


def test_a_failure_is_told_as_worse_than_all_that_was_seen() -> None:
    results = iter([[[np.nan, 1.0]], [[1.0, 5.0], [3.0, np.inf], [2.0, 4.0]]])
    budget = Budget(lambda _: np.array(next(results)), BOX, 2, 4)

    np.testing.assert_array_equal(budget.spend(np.zeros((1, 3))), [[NOTHING_SEEN] * 2])
    told = budget.spend(np.zeros((5, 3)))

    floor = np.array([1.0, 4.0]) - FAILURE_MARGIN * np.array([1.0, 1.0])
    np.testing.assert_allclose(told, [[1.0, 5.0], floor, [2.0, 4.0]])
    np.testing.assert_allclose(budget.filled()[0], floor)
    assert budget.left == 0
    assert budget.spend(np.zeros((1, 3))).shape == (0, 2)


def test_who_cannot_take_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in PACKAGES.values():
        monkeypatch.setitem(sys.modules, package, None)

    check_opponents(["random", "nsga2", "moead"], 2)
    check_opponents(["random", "nsga2"], 1)
    with pytest.raises(ConfigError, match="'moead' searches a trade-off"):
        check_opponents(["random", "moead"], 1)
    for name, package in PACKAGES.items():
        message = rf"'{name}' needs {package}.*pip install 'mergekit-map\[bench\]'"
        with pytest.raises(ConfigError, match=message):
            check_opponents(["random", name], 2)
