"""Designs that build on the log, refinement, and what a surrogate needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import LOSS, Recorder, line, make_study, run

from mergekit_map.errors import DesignError
from mergekit_map.results.log import Evaluation, read_log
from mergekit_map.search.planning import design, warn_of_few
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement

IDEAL = {"a": np.array([0.8, 0.3]), "b": np.array([0.2, 0.7])}


def study_of(**search: Any) -> Study:
    loss = replace(LOSS, differentiable=True)
    return make_study("xy", "ab", ("base",), loss, **{"remeasure": 0, **search})


def landscape(ripple: float = 0.0) -> Recorder:
    """Measure a bowl per task, with a ripple of the given height."""

    def answer(coefficients: Mapping[str, float], task: str) -> Measurement:
        c = np.array(list(coefficients.values()))
        height = ripple * math.sin(8 * c.sum())
        gradient = 2 * (c - IDEAL[task]) + 8 * ripple * math.cos(8 * c.sum())
        named = dict(zip(coefficients, gradient.tolist(), strict=True))
        value = 1 + ((c - IDEAL[task]) ** 2).sum() + height
        return Measurement(float(value), None, 1, gradient=named)

    return Recorder(answer)


def roles(folder: Path) -> list[str]:
    return [e.role for e in read_log(folder / "evaluations.jsonl")]


@pytest.mark.parametrize("surrogate", ["auto", "quadratic"])
def test_refinement_stops_when_the_front_is_as_predicted(
    surrogate: str, tmp_path: Path
) -> None:
    run(study_of(evaluations=40, surrogate=surrogate), tmp_path, landscape())

    # A few rounds show that the quadratic is exact.
    assert 2 * 2 <= roles(tmp_path).count("refinement") <= 2 * 6
    assert len(roles(tmp_path)) < 2 * 20


def test_slopes_let_a_search_do_with_fewer_merges(tmp_path: Path) -> None:
    study = study_of(evaluations=3, gradients=True)

    result = run(study, tmp_path, landscape())

    for task, surrogate in result.surrogates.items():
        assert surrogate.predict(IDEAL[task][None]) == pytest.approx(1.0, abs=1e-8)


def test_a_search_without_slopes_is_measured_again_for_them(tmp_path: Path) -> None:
    run(study_of(evaluations=8, refine=False), tmp_path, landscape())
    lines = (tmp_path / "evaluations.jsonl").read_text().splitlines(keepends=True)
    bare = [line.split(', "gradient"')[0].rstrip("}\n") + "}\n" for line in lines]
    (tmp_path / "evaluations.jsonl").write_text("".join(bare))
    again = landscape()

    run(study_of(evaluations=8, gradients=True, refine=False), tmp_path, again)

    assert len(again.calls) >= 2 * 8


@pytest.mark.parametrize(
    ("search", "count", "least"),
    [
        ({"evaluations": 5, "surrogate": "regularized"}, 5, 6),
        ({"evaluations": 3}, 3, 6),
        ({"evaluations": 5, "strategy": "bayesian"}, 5, 6),
        ({"evaluations": 4, "strategy": "nested"}, 4, 6),
    ],
)
def test_a_search_of_too_few_merges_is_warned_of(
    search: dict[str, Any], count: int, least: int
) -> None:
    assert warn_of_few(study_of(**search), []) == (
        f"only {count} merges will be measured for 2 coefficients: below {least} a "
        f"front is a guess; set 'evaluations' to {least} or more"
    )


def logged(points: np.ndarray) -> list[Evaluation]:
    merges = [dict(zip("xy", point, strict=True)) for point in points.tolist()]
    return [line(merge, task) for merge in merges for task in "ab"]


def test_a_d_optimal_design_builds_on_the_log() -> None:
    study = study_of(evaluations=10, design="d_optimal", refine=False)
    known = np.random.default_rng(0).uniform(size=(4, 2))

    planned = np.array([study.vector(c) for _, c in design(study, logged(known))])

    np.testing.assert_array_equal(planned[1:5], known)
    assert len(planned) == 10
    fresh = np.array([study.vector(c) for _, c in design(study)])
    assert not (fresh[1:5] == known).all()


def test_a_d_optimal_design_goes_on_where_it_was() -> None:
    study = study_of(evaluations=12, design="d_optimal")
    whole = np.array([study.vector(c) for _, c in design(study)])

    for k in range(1, 12):
        rest = [study.vector(c) for _, c in design(study, logged(whole[:k]))]
        np.testing.assert_array_equal(rest, whole)


PLAIN = {"evaluations": 5, "surrogate": "quadratic"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (PLAIN, r"6 parameters and needs 6 evaluations, but only 5"),
        (PLAIN, r"at least 1 more.*surrogate: regularized"),
        (
            {**PLAIN, "evaluations": 2, "gradients": True},
            r"needs 3 evaluations, but only 2",
        ),
        ({"evaluations": 2, "surrogate": "regularized"}, r"needs 3 .*at least 1 more$"),
    ],
)
def test_says_what_is_missing(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        design(study_of(**spec))
