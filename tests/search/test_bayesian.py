"""Bayesian MAP as rounds of a study, on metrics with no model anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fakes import LOSS, Recorder, line, make_study, run
from stopping import stopped_and_resumed

from mergekit_map.errors import DesignError
from mergekit_map.results.log import Evaluation, read_log
from mergekit_map.search.bayesian import bayesian_round, bin_of
from mergekit_map.search.checks import search_problems
from mergekit_map.search.study import Study
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
