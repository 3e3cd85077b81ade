"""Bayesian MAP as rounds of a study, on metrics with no model anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import LOSS, Recorder, line, make_study, run
from stopping import stopped_and_resumed

from mergekit_map.errors import DesignError
from mergekit_map.results.log import Evaluation, read_log
from mergekit_map.search.angular_bins import bin_of, propose_points
from mergekit_map.search.bayesian import bayesian_round
from mergekit_map.search.checks import search_problems
from mergekit_map.search.study import Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import Measurement


def losses(coefficients: Mapping[str, float], task: str) -> Measurement:
    """Measure a quadratic, and the same with a step that none can follow.

    The step is in the sector of the second coefficient.
    """
    x = np.array(list(coefficients.values()))
    value = float(((x - 0.7) ** 2).sum())
    if task == "step" and len(x) > 1 and x[1] > 2 * x[0]:
        value += 3 * np.sin(20 * x[1])
    return Measurement(float(value), None, 10)


def study_of(d: int = 2, **search: object) -> Study:
    """Search one task, of which the front is found at once."""
    names = "abcd"[:d]
    search = {"strategy": "bayesian", "remeasure": 2, **search}
    return make_study(names, ["step"], ("base", *names), **search)


def two_tasks(study: Study) -> Study:
    names = ("smooth", "step")
    definitions = {name: name for name in names}
    return replace(study, tasks=dict.fromkeys(names, LOSS), definitions=definitions)


def merges(path: Path) -> list[tuple[float, ...]]:
    """List the merges that were not measured as points of the front."""
    lines = read_log(path / "evaluations.jsonl")
    designed = (e.coefficients for e in lines if e.role != "front")
    return list(dict.fromkeys(tuple(c.values()) for c in designed))


@pytest.mark.parametrize(("d", "anchors"), [(1, 2), (2, 3), (3, 4)])
def test_uses_as_many_evaluations_as_asked_for(
    d: int, anchors: int, tmp_path: Path
) -> None:
    evaluate = Recorder(losses)
    run(study_of(d, evaluations=17), tmp_path / "17", evaluate)
    run(study_of(d), tmp_path / "default", losses)

    assert len(merges(tmp_path / "17")) == 17
    assert len(evaluate.calls) == len(set(evaluate.calls))
    # The paper's 6 + 2 * 3 beside the anchors.
    assert len(merges(tmp_path / "default")) == anchors + 12


def test_rounds_go_where_the_surrogate_errs(tmp_path: Path) -> None:
    shares = []
    for seed in range(5):
        folder = tmp_path / str(seed)
        run(study_of(evaluations=39, seed=seed), folder, losses)
        added = np.array(merges(folder)[9:])
        bins = bin_of(added, np.array([[0.0, 1.0]] * 2))
        shares.append(np.isin(bins, [4, 5]).mean())  # where x[1] > 2 * x[0], about

    # 2 of 6 sectors; 1/3 if the draws knew nothing.
    assert np.mean(shares) > 0.45


@pytest.mark.slow
def test_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    study = two_tasks(study_of(evaluations=15))
    whole = Recorder(losses)
    run(study, tmp_path / "whole", whole)
    for stop in (3, 20, 25):  # in the first round, and in both that follow it
        folder, evaluate = tmp_path / f"stop{stop}", Recorder(losses)

        stopped_and_resumed(partial(run, study, folder), evaluate, stop)

        assert evaluate.calls == whole.calls
        front = (folder / "front.json").read_bytes()
        assert front == (tmp_path / "whole" / "front.json").read_bytes()


def test_more_evaluations_use_those_there_are(tmp_path: Path) -> None:
    first = 13  # within a round
    run(study_of(evaluations=first), tmp_path / "more", losses)
    before = merges(tmp_path / "more")
    run(study_of(evaluations=18), tmp_path / "more", losses)
    run(study_of(evaluations=18), tmp_path / "once", losses)

    # Whole rounds are the same, and one that was cut short is completed. Later ones
    # know what was measured of the first front, too.
    more, once = merges(tmp_path / "more"), merges(tmp_path / "once")
    whole = 9 + 3 * math.ceil((first - 9) / 3)
    assert more[:first] == before
    assert more[:whole] == once[:whole]
    assert len(more) == len(once) == 18


def test_a_round_depends_on_what_is_known_to_it_alone() -> None:
    study = study_of(evaluations=20)
    start = bayesian_round(study, [], [])

    def known(values: list[float]) -> list[Evaluation]:
        merges = zip(start, values, strict=True)
        return [line(c, "step", value, role=role) for (role, c), value in merges]

    values = list(np.random.default_rng(0).random(len(start)))
    one, same = (bayesian_round(study, [start], known(values)) for _ in range(2))
    other_seed = replace(study, search=study.search.model_copy(update={"seed": 1}))

    assert one == same
    assert len(one) == 3
    assert bayesian_round(other_seed, [start], known(values)) != one
    assert bayesian_round(study, [start, one], known(values)) != one


def test_failed_measurements_leave_the_bins_alike(tmp_path: Path) -> None:
    asked = Recorder(losses)

    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        measured = asked(coefficients, task)
        if 2 < len(asked.calls) < 9:
            raise RuntimeError("out of memory")
        return measured

    study = study_of(evaluations=18, surrogate="quadratic")
    result = run(study, tmp_path, evaluate)

    # 3 merges of the first round, too few for a fit, 9 of the next three, and a front.
    lines = read_log(tmp_path / "evaluations.jsonl")
    n_front = len({e.key for e in lines if e.role == "front"})
    assert result.surrogates["step"].quality.n == 12 + n_front
    assert len(merges(tmp_path)) == 18


def test_too_few_evaluations_are_refused_before_anything_is_measured() -> None:
    problems = search_problems(study_of(evaluations=8))

    assert [p.key for p in problems] == [("map", "search", "evaluations")]
    assert "starts with 9 merges, anchors included" in problems[0].message
    assert "at least 1 more, better 7" in problems[0].message
    with pytest.raises(DesignError, match="only 8 evaluations"):
        bayesian_round(study_of(evaluations=8), [], [])


def test_more_than_three_coefficients_are_refused() -> None:
    problems = search_problems(study_of(4))

    assert [p.key for p in problems] == [("map", "search", "strategy")]
    assert "use map, or nested" in problems[0].message


def test_each_task_is_held_against_its_own_surrogate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def listening(X: FloatArray, errors: FloatArray, *others: Any) -> FloatArray:
        found.append(errors)
        return propose_points(X, errors, *others)

    monkeypatch.setattr("mergekit_map.search.bayesian.propose_points", listening)
    study = two_tasks(study_of(evaluations=13))

    def exact(coefficients: Mapping[str, float], task: str) -> Measurement:
        """Measure a quadratic of its own of each task, without an error."""
        a, b = coefficients.values()
        return Measurement((a - b) ** 2 if task == "step" else 100 * a * b, None, 10)

    run(study, tmp_path, exact)

    assert len(found) == 2
    assert max(errors.max() for errors in found) < 1e-12
