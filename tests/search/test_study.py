"""The study on metrics whose front is known, with no model anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import IDEAL, Recorder, bowls, line, make_study, run

from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.optimize.front_refinement import non_dominated
from mergekit_map.results.log import read_log
from mergekit_map.search.fitting import fit_surrogates, predict_utilities
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement


@pytest.fixture
def study() -> Study:
    return make_study(
        "ab",
        list(IDEAL),
        ("base", "a"),
        evaluations=10,
        remeasure=3,
        surrogate="quadratic",
        refine=False,
    )


@pytest.mark.whole_front
def test_finds_the_front_between_two_bowls(study: Study, tmp_path: Path) -> None:
    alike = SelectSpec(prefer=dict.fromkeys(IDEAL, 1))  # "b" alone is not measured
    result = run(replace(study, select=alike), tmp_path, Recorder(bowls))

    front = np.array([list(c.values()) for c in result.front])
    chosen = front[result.selected]
    # Beside merges of the design that no other measured one dominates.
    front = front[non_dominated(predict_utilities(study, result.surrogates, front))]
    start, end = np.array(IDEAL["near_a"]), np.array(IDEAL["near_b"])
    along = (front - start) @ (end - start) / np.sum((end - start) ** 2)
    np.testing.assert_allclose(front, start + along[:, None] * (end - start), atol=5e-3)
    assert along.min() < 0.02
    assert along.max() > 0.98
    # Both tasks count the same, and are mirror images of one another.
    assert (start + end) / 2 == pytest.approx(chosen, abs=0.1)


@pytest.mark.parametrize(
    "change", [{"merge": "other"}, {"definitions": {"near_a": "x", "near_b": "x"}}]
)
def test_measurements_of_something_else_are_never_mixed_in(
    study: Study, tmp_path: Path, change: dict[str, object]
) -> None:
    run(study, tmp_path, Recorder(bowls))
    evaluate = Recorder(bowls)

    run(replace(study, **change), tmp_path, evaluate)  # type: ignore[arg-type]

    assert len(evaluate.calls) >= 2 * (10 + 1)


def test_a_failed_merge_stays_in_the_log_and_out_of_the_fit(
    study: Study, tmp_path: Path
) -> None:
    asked = Recorder(bowls)

    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        measured = asked(coefficients, task)
        if len(asked.calls) == 9:
            return Measurement(math.nan, math.nan, 10)
        if len(asked.calls) == 12:
            raise RuntimeError("out of memory")
        return measured

    result = run(study, tmp_path, evaluate)

    log = list(read_log(tmp_path / "evaluations.jsonl"))
    n_front = sum(e.role == "front" for e in log) // 2
    assert {s.quality.n for s in result.surrogates.values()} == {10 - 1 + n_front}
    assert all(s.quality.r2 > 0.999 for s in result.surrogates.values())
    failed = [e for e in log if e.failed]
    assert [e.error for e in failed] == [None, "out of memory"]
    # What broke is tried again, and what was no number is not.
    again = Recorder(bowls)
    run(study, tmp_path, again)
    assert again.calls[0] == asked.calls[11]
    assert asked.calls[8] not in again.calls


@pytest.mark.parametrize("broken", IDEAL)
def test_stops_when_the_first_merge_cannot_be_measured(
    study: Study, broken: str, tmp_path: Path
) -> None:
    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        if task == broken:
            raise RuntimeError(f"no {task} at {len(coefficients)}")
        return bowls(coefficients, task)

    message = f"'{broken}' cannot be measured.*no {broken}"
    with pytest.raises(EvaluationError, match=message):
        run(study, tmp_path, evaluate)
    assert len(list(read_log(tmp_path / "evaluations.jsonl"))) <= 2


def test_anchors_outside_the_box_are_measured_but_not_fitted(
    study: Study, tmp_path: Path
) -> None:
    inner = replace(study, bounds={"a": (0.2, 1.0), "b": (0.1, 1.0)})

    result = run(inner, tmp_path, Recorder(bowls))

    log = read_log(tmp_path / "evaluations.jsonl")
    n_front = sum(e.role == "front" for e in log) // 2
    assert {s.quality.n for s in result.surrogates.values()} == {10 - 2 + n_front}
    front = np.array([list(c.values()) for c in result.front])
    assert np.all(front >= [0.2, 0.1])


def test_a_measurement_counts_by_its_standard_error(study: Study) -> None:
    study = replace(study, search=SearchSpec(surrogate="quadratic"))
    places = np.random.default_rng(0).uniform(size=(12, 2))
    truth = [bowls(study.named(x), "near_a").value for x in places]

    def missed(*stderrs: float | None) -> float:
        """Fit, with the last measurement 2 off, and say how far off predictions are."""
        values = [*truth[:-1], truth[-1] + 2]
        known = zip(places, values, stderrs, strict=True)
        evaluations = [
            line(study.named(x), task, value, stderr=stderr, n=10)
            for x, value, stderr in known
            for task in study.tasks
        ]
        surrogate = fit_surrogates(study, evaluations)["near_a"]
        return float(np.abs(surrogate.predict(places[:-1]) - truth[:-1]).mean())

    assert missed(*[0.001] * 11, 2.0) < missed(*[None] * 12) / 2
    # One that is unknown is taken to be like the others: it drops none of them.
    unknown = missed(None, *[0.001] * 10, 2.0)
    assert unknown == pytest.approx(missed(*[0.001] * 11, 2.0))
    assert missed(*[0.001] * 12) == pytest.approx(missed(*[None] * 12))
