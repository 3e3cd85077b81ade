"""AdaMerging's descent on an objective whose minimum is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from stopping import stopped_and_resumed

from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Measurement, Metric
from mergekit_map.specs import SearchSpec, SelectSpec
from mergekit_map.study.adapting import START, STEPS, minimise_entropy
from mergekit_map.study.log import open_log
from mergekit_map.study.measuring import measure
from mergekit_map.study.study import Evaluator, Study

LOWEST = {"a": 0.55, "b": -0.4}


class Bowl:
    """A squared distance with its slopes."""

    def __init__(self) -> None:
        self.calls: list[dict[str, float]] = []

    def __call__(self, coefficients: Mapping[str, float], task: str) -> Measurement:
        assert task == "entropy"
        self.calls.append(dict(coefficients))
        apart = {name: c - LOWEST[name] for name, c in coefficients.items()}
        slopes = {name: 2 * value for name, value in apart.items()}
        value = sum(v**2 for v in apart.values())
        return Measurement(value, None, 1, gradient=slopes)


@pytest.fixture
def study() -> Study:
    return Study(
        bounds={"a": (0.0, 1.0), "b": (0.0, 1.0)},
        anchors={},
        tasks={"entropy": Metric(higher_is_better=False, lower=0.0, upper=None)},
        definitions={"entropy": "e"},
        merge="m",
        search=SearchSpec(),
        select=SelectSpec(),
    )


def descend(study: Study, path: Path, evaluate: Evaluator) -> dict[str, float]:
    with open_log(path / "evaluations.jsonl") as log:

        def measure_one(merge: Mapping[str, float]) -> None:
            measure(study, [("baseline", merge)], evaluate, log, lambda _: None)

        return minimise_entropy(study, log, measure_one)


def test_goes_down_as_far_as_the_box_lets_it(study: Study, tmp_path: Path) -> None:
    bowl = Bowl()

    end = descend(study, tmp_path, bowl)

    assert bowl.calls[0] == {"a": START, "b": START}
    assert len(bowl.calls) == STEPS
    assert end["a"] == pytest.approx(LOWEST["a"], abs=0.05)
    assert end["b"] == 0


def test_the_first_step_of_adam_is_its_rate_whatever_the_slope(
    study: Study, tmp_path: Path
) -> None:
    bowl = Bowl()

    descend(study, tmp_path, bowl)

    assert bowl.calls[1] == pytest.approx({"a": START + 0.03, "b": START - 0.03})


def test_a_descent_that_was_stopped_takes_the_same_way(
    study: Study, tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    whole = descend(study, tmp_path / "whole", Bowl())
    bowl = Bowl()

    end = stopped_and_resumed(partial(descend, study, tmp_path), bowl, 11)

    assert end == whole
    assert len(bowl.calls) == STEPS


def test_a_step_without_derivatives_is_an_error(study: Study, tmp_path: Path) -> None:
    class Flat(Bowl):
        def __call__(self, coefficients: Mapping[str, float], task: str) -> Measurement:
            gradient = {**super().__call__(coefficients, task).gradient, "b": math.nan}
            return Measurement(1.0, None, 1, gradient=gradient)

    with pytest.raises(EvaluationError, match="no finite derivatives"):
        descend(study, tmp_path, Flat())
