"""What of the log is good for what: measurements with and without derivatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import LOSS, Recorder, ignore, make_study

from mergekit_map.results.log import EvaluationLog, Role, open_log
from mergekit_map.search.measure import measure
from mergekit_map.types import Measurement

TASKS = {"text": replace(LOSS, differentiable=True), "own": LOSS}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EvaluationLog]:
    with open_log(tmp_path / "evaluations.jsonl") as opened:
        yield opened


def measured(log: EvaluationLog, role: Role, *, gradients: bool) -> list[str]:
    """Measure one merge; list the tasks that were measured for it."""

    def total(coefficients: Mapping[str, float], task: str) -> Measurement:
        """Measure the sum of the coefficients, with derivatives for one task."""
        slopes = dict.fromkeys(coefficients, 1.0)
        found = slopes if gradients and task == "text" else None
        return Measurement(sum(coefficients.values()), None, 1, gradient=found)

    evaluate, study = Recorder(total), make_study("ab", TASKS, gradients=gradients)
    measure(study, [(role, {"a": 0.25, "b": 0.5})], evaluate, log, ignore)
    return [task for _, task in evaluate.calls]


def test_derivatives_go_into_the_log(log: EvaluationLog) -> None:
    measured(log, "design", gradients=True)

    assert {e.task: e.gradient for e in log} == {
        "text": {"a": 1.0, "b": 1.0},
        "own": None,
    }
    assert measured(log, "design", gradients=True) == []


def test_what_lacks_derivatives_is_measured_again_where_they_are_fitted(
    log: EvaluationLog,
) -> None:
    assert measured(log, "anchor", gradients=False) == ["text", "own"]

    assert measured(log, "front", gradients=True) == []
    assert measured(log, "anchor", gradients=True) == ["text"]
    assert measured(log, "anchor", gradients=True) == []
    assert measured(log, "anchor", gradients=False) == []
