"""Searches with little to find: what each comes to is decided here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import LOSS, ignore, make_study

from mergekit_map.optimize.front_refinement import non_dominated
from mergekit_map.results.log import Evaluation, open_log, read_log
from mergekit_map.search.fitting import predict_utilities
from mergekit_map.search.loop import run_study
from mergekit_map.search.study import StudyResult
from mergekit_map.types import Measurement, Metric

ACCURACY = Metric(higher_is_better=True, lower=0.0, upper=1.0)
Value = Callable[[np.ndarray], float]


def search(
    folder: Path, d: int, tasks: Mapping[str, tuple[Metric, Value]], **spec: Any
) -> tuple[StudyResult, np.ndarray]:
    """Search ``d`` coefficients; returns the result and the predicted front (k, d)."""
    names = [f"model{i}" for i in range(d)]
    metrics = {task: metric for task, (metric, _) in tasks.items()}
    study = replace(make_study(names, list(tasks), **spec), tasks=metrics)

    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        value = tasks[task][1](np.array(list(coefficients.values())))
        return Measurement(float(value), None, 1)

    with open_log(folder / "evaluations.jsonl") as log:
        result = run_study(study, evaluate, log, ignore)
    front = np.array([study.vector(c) for c in result.front])
    # Beside what was measured, and what another is only predicted to dominate.
    predicted = predict_utilities(study, result.surrogates, front)
    return result, front[non_dominated(predicted)]


def bowl(*centre: float) -> Value:
    return lambda c: 1 + float(((c - np.array(centre)) ** 2).sum())


def test_identical_task_vectors_share_what_one_would_get(tmp_path: Path) -> None:
    tasks = {
        "near": (LOSS, lambda c: 1 + (c.sum() - 0.4) ** 2),
        "far": (LOSS, lambda c: 1 + (c.sum() - 1.2) ** 2),
    }

    _, front = search(tmp_path, 2, tasks)

    # Only the sum counts: no two points have the same one, and all of it is covered.
    sums = np.sort(front.sum(axis=1))
    assert (np.diff(sums) > 1e-7).all()
    assert sums[0] == pytest.approx(0.4, abs=1e-2)
    assert sums[-1] == pytest.approx(1.2, abs=1e-2)


def test_a_zero_task_vector_changes_nothing(tmp_path: Path) -> None:
    tasks = {
        "a": (LOSS, lambda c: 1 + (c[0] - 0.2) ** 2),
        "b": (LOSS, lambda c: 1 + (c[0] - 0.9) ** 2),
    }

    result, front = search(tmp_path, 2, tasks)

    assert front[:, 0].min() == pytest.approx(0.2, abs=1e-2)
    assert front[:, 0].max() == pytest.approx(0.9, abs=1e-2)
    for surrogate in result.surrogates.values():
        assert abs(surrogate.quadratic.linear[1]) < 1e-6


def test_tasks_that_agree_completely_leave_one_merge(tmp_path: Path) -> None:
    tasks = {
        "loss": (LOSS, bowl(0.3, 0.6)),
        "score": (ACCURACY, lambda c: 0.9 - 0.3 * (bowl(0.3, 0.6)(c) - 1)),
    }

    _, front = search(tmp_path, 2, tasks, evaluations=20)

    assert np.ptp(front, axis=0).max() < 0.02
    assert front.mean(axis=0) == pytest.approx([0.3, 0.6], abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("surrogate", ["quadratic", "residual_gp"])
def test_a_constant_task_has_no_say(tmp_path: Path, surrogate: str) -> None:
    tasks = {"flat": (ACCURACY, lambda _: 0.25), "bowl": (LOSS, bowl(0.3, 0.6))}

    result, front = search(tmp_path, 2, tasks, surrogate=surrogate)

    assert front == pytest.approx(np.array([[0.3, 0.6]]), abs=0.02)
    assert result.surrogates["flat"].predict(front) == pytest.approx(0.25, abs=1e-6)


def test_ten_models_do_with_fewer_evaluations_than_terms(tmp_path: Path) -> None:
    centres = np.full((3, 10), 0.4) + 0.3 * np.eye(3, 10)
    tasks = {f"task{i}": (LOSS, bowl(*c)) for i, c in enumerate(centres)}

    result, front = search(
        tmp_path, 10, tasks, evaluations=60, surrogate="regularized", remeasure=0
    )

    unseen = np.random.default_rng(0).uniform(size=(50, 10))
    for task, surrogate in result.surrogates.items():
        truth = np.array([tasks[task][1](c) for c in unseen])
        miss = surrogate.predict(unseen) - truth
        assert (miss**2).mean() < 0.05 * truth.var()
    # The front is the triangle of the centres.
    assert front[:, 3:] == pytest.approx(0.4, abs=0.12)


def test_one_task_leaves_its_best_merge(tmp_path: Path) -> None:
    _, front = search(tmp_path, 3, {"only": (LOSS, bowl(0.2, 0.5, 0.8))})

    assert front == pytest.approx(np.array([[0.2, 0.5, 0.8]]), abs=1e-2)


def measured(folder: Path) -> list[Evaluation]:
    return list(read_log(folder / "evaluations.jsonl"))


def test_failures_in_the_first_design_are_made_up_for(tmp_path: Path) -> None:
    def fails_nearly_everywhere(c: np.ndarray) -> float:
        return bowl(0.1, 0.1)(c) if c.sum() < 0.6 else math.nan

    tasks = {"frail": (LOSS, fails_nearly_everywhere), "firm": (LOSS, bowl(0.8, 0.8))}

    result, _ = search(tmp_path, 2, tasks, evaluations=30)

    of_frail = [e for e in measured(tmp_path) if e.task == "frail"]
    assert all(e.failed for e in of_frail[1:4])  # the singles, and the soup
    assert result.surrogates["frail"].quality.n >= 3
