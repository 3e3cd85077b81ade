"""AdaMerging's descent on an objective whose minimum is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
from fakes import Recorder, ignore
from stopping import stopped_and_resumed

from mergekit_map.compare.adamerging import START, minimise_entropy
from mergekit_map.config.specs import SearchSpec, SelectSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Measurement, Metric
from mergekit_map.results.opened_log import open_log
from mergekit_map.study.measuring import measure
from mergekit_map.study.study import Evaluator, Study

STEPS = 30
LOWEST = {"a": 0.55, "b": -0.4}


def bowl(coefficients: Mapping[str, float], task: str) -> Measurement:
    """Measure a squared distance, with its slopes."""
    assert task == "entropy"
    apart = {name: c - LOWEST[name] for name, c in coefficients.items()}
    slopes = {name: 2 * value for name, value in apart.items()}
    return Measurement(sum(v**2 for v in apart.values()), None, 1, gradient=slopes)


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


def descend(
    study: Study, path: Path, evaluate: Evaluator, steps: int = STEPS
) -> dict[str, float]:
    with open_log(path / "evaluations.jsonl") as log:

        def measure_one(merge: Mapping[str, float]) -> None:
            measure(study, [("baseline", merge)], evaluate, log, ignore)

        return minimise_entropy(study, log, measure_one, steps)


def test_goes_down_as_far_as_the_box_lets_it(study: Study, tmp_path: Path) -> None:
    asked = Recorder(bowl)

    end = descend(study, tmp_path, asked)

    assert asked.calls[0] == ((START, START), "entropy")
    assert len(asked.calls) == STEPS
    assert end["a"] == pytest.approx(LOWEST["a"], abs=0.05)
    assert end["b"] == 0


@pytest.mark.parametrize(("steps", "rate"), [(30, 0.5 / 30), (500, 1e-3)])
def test_the_first_step_of_adam_is_its_rate_whatever_the_slope(
    study: Study, tmp_path: Path, steps: int, rate: float
) -> None:
    asked = Recorder(bowl)

    descend(study, tmp_path, asked, steps)

    assert len(asked.calls) == steps
    assert asked.calls[1][0] == pytest.approx((START + rate, START - rate))


def test_it_goes_where_torch_goes(study: Study, tmp_path: Path) -> None:
    asked = Recorder(bowl)

    descend(study, tmp_path, asked, steps=500)

    c = torch.full((2,), START, dtype=torch.float64, requires_grad=True)
    lowest = torch.tensor([*LOWEST.values()], dtype=torch.float64)
    adam = torch.optim.Adam([c], lr=1e-3)
    for (place, _), _ in zip(asked.calls, range(290), strict=False):  # in the box
        assert place == pytest.approx(c.tolist(), abs=1e-9)
        adam.zero_grad()
        ((c - lowest) ** 2).sum().backward()
        adam.step()


def test_a_descent_that_was_stopped_takes_the_same_way(
    study: Study, tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    whole = descend(study, tmp_path / "whole", bowl)
    asked = Recorder(bowl)

    end = stopped_and_resumed(partial(descend, study, tmp_path), asked, 11)

    assert end == whole
    assert len(asked.calls) == STEPS


def test_a_step_without_derivatives_is_an_error(study: Study, tmp_path: Path) -> None:
    def flat(coefficients: Mapping[str, float], task: str) -> Measurement:
        gradient = {**bowl(coefficients, task).gradient, "b": math.nan}
        return Measurement(1.0, None, 1, gradient=gradient)

    with pytest.raises(EvaluationError, match="no finite derivatives"):
        descend(study, tmp_path, flat)
