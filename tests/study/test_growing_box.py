"""``bounds: auto``: the box grows where measured merges beyond it are better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fakes import LOSS, Recorder, run
from quick_fronts import fronts_of_few_points
from stopping import stopped_and_resumed

from mergekit_map.config.specs import AutoBounds, SearchSpec, SelectSpec
from mergekit_map.measurement import Measurement
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, read_log
from mergekit_map.results.quality import Growth
from mergekit_map.results.records import read_record
from mergekit_map.results.verdict_words import verdicts_in_words
from mergekit_map.search.fit import fit_surrogate
from mergekit_map.search.links import Link
from mergekit_map.study.growing import Box, settled, trial_round
from mergekit_map.study.study import Evaluator, Study

pytestmark = pytest.mark.usefixtures("_few_points")
Ideals = Mapping[str, tuple[float, ...]]


@pytest.fixture
def _few_points() -> Iterator[None]:
    with fronts_of_few_points(30):
        yield


def bowls(ideals: Ideals) -> Evaluator:
    """Measure the squared distance to a point per task."""

    def measure(coefficients: Mapping[str, float], task: str) -> Measurement:
        x = np.array([*coefficients.values()])
        return Measurement(1 + float(np.sum((x - ideals[task]) ** 2)), 1e-3, 10)

    return measure


def cliff(coefficients: Mapping[str, float], task: str) -> Measurement:
    """Measure a bowl with its best at 1.3, and a step to what is worse at 1.02."""
    measured = bowls({"t": (1.3,)})(coefficients, task)
    step = 0.5 if coefficients["a"] > 1.02 else 0.0
    return replace(measured, value=measured.value + step)


def make_study(
    ideals: Ideals, bounds: AutoBounds | dict[str, AutoBounds] = "auto"
) -> Study:
    names = ("a", "b")[: len(next(iter(ideals.values())))]
    zero = dict.fromkeys(names, 0.0)
    search = SearchSpec(evaluations=16, remeasure=2, bounds=bounds)
    return Study(
        bounds=dict.fromkeys(names, (0.0, 1.0)),
        anchors={
            "base": zero,
            **{name: {**zero, name: 1.0} for name in names},
            "soup": dict.fromkeys(names, 1 / len(names)),
        },
        tasks=dict.fromkeys(ideals, LOSS),
        definitions={task: task for task in ideals},
        merge="m",
        search=search,
        select=SelectSpec(),
    )


def searched(folder: Path) -> list[tuple[float, ...]]:
    """List the merges that a search chose, without those of the front."""
    log = read_log(folder / "evaluations.jsonl")
    merges = {tuple(e.coefficients.values()): e.role for e in log}
    return [merge for merge, role in merges.items() if role != "front"]


def test_a_box_grows_until_it_holds_the_best_merge(tmp_path: Path) -> None:
    result = run(make_study({"t": (1.3,)}), tmp_path, bowls({"t": (1.3,)}))

    assert result.bounds == {"a": (0.0, 1.4)}
    assert result.growth == (Growth(coefficient="a", start=1.0, end=1.4),)
    assert result.front[result.selected]["a"] == pytest.approx(1.3, abs=0.02)
    assert result.surrogates["t"].bounds.tolist() == [[0.0, 1.4]]
    front = read_record(tmp_path / "front.json", Front, "front")
    assert front.coefficients == {"a": (0.0, 1.4)}
    assert (
        "The box grew to [0, 1.4] for a, as merges measured beyond 1 were better."
        in verdicts_in_words(front)
    )


def test_the_lower_end_grows_to_what_it_may_at_most(tmp_path: Path) -> None:
    result = run(make_study({"t": (-0.8,)}), tmp_path, bowls({"t": (-0.8,)}))

    assert result.bounds == {"a": (-0.5, 1.0)}
    assert result.front[result.selected]["a"] == pytest.approx(-0.5)


def test_of_two_tasks_the_box_holds_the_best_of_each(tmp_path: Path) -> None:
    ideals = {"one": (1.3, 0.2), "two": (0.2, 0.7)}

    result = run(make_study(ideals), tmp_path, bowls(ideals))

    values = np.array(
        [[bowls(ideals)(c, task).value - 1 for task in ideals] for c in result.front]
    )
    apart = np.sum(np.subtract(*ideals.values()) ** 2)  # how far one task varies
    assert result.bounds["b"] == (0.0, 1.0)
    assert values.min(axis=0).max() < 0.02 * apart


@pytest.mark.parametrize("ideal", [(0.9, 0.2), (0.6, 0.5)])
def test_a_box_that_holds_the_best_costs_no_evaluation_more(
    ideal: tuple[float, float], tmp_path: Path
) -> None:
    ideals = {"one": ideal, "two": (0.2, 0.7)}

    fixed = run(make_study(ideals, (0.0, 1.0)), tmp_path / "fixed", bowls(ideals))
    result = run(make_study(ideals), tmp_path / "auto", bowls(ideals))

    assert result.growth == ()
    assert searched(tmp_path / "auto") == searched(tmp_path / "fixed")
    assert result.front == fixed.front


def test_a_gain_that_is_not_measured_is_tried_once(tmp_path: Path) -> None:
    result = run(make_study({"t": (1.3,)}), tmp_path, cliff)

    [(tried,)] = [merge for merge in searched(tmp_path) if merge[0] > 1]
    assert result.bounds == {"a": (0.0, 1.0)}
    assert result.growth == (Growth(coefficient="a", start=1, end=1, tried=tried),)
    front = read_record(tmp_path / "front.json", Front, "front")
    assert front.coefficients == {"a": (0.0, 1.0)}
    assert front.border == ()  # a larger box is no advice: it was measured
    assert (
        "The box does not go beyond 1 for a: better merges were predicted there, but "
        f"the one measured at {tried:.4g} did not bear that out."
    ) in verdicts_in_words(front)


def test_an_end_whose_merge_cannot_be_measured_stays(tmp_path: Path) -> None:
    def failing(coefficients: Mapping[str, float], task: str) -> Measurement:
        if coefficients["a"] > 1:
            raise RuntimeError("too large")
        return bowls({"t": (1.3,)})(coefficients, task)

    result = run(make_study({"t": (1.3,)}), tmp_path, failing)

    assert result.bounds == {"a": (0.0, 1.0)}


def test_an_end_with_numbers_stays_beside_one_that_grows(tmp_path: Path) -> None:
    ideals = {"t": (1.3, 1.3)}
    bounds: dict[str, AutoBounds] = {"a": "auto", "b": (0.0, 1.0)}

    result = run(make_study(ideals, bounds), tmp_path, bowls(ideals))

    assert result.bounds == {"a": (0.0, 1.4), "b": (0.0, 1.0)}


def test_growing_takes_no_more_evaluations_than_are_allowed(tmp_path: Path) -> None:
    study = make_study({"t": (1.3,)})
    spec = study.search.model_copy(update={"evaluations": 5})

    run(replace(study, search=spec), tmp_path, bowls({"t": (1.3,)}))

    assert len(searched(tmp_path)) <= 5


@pytest.mark.parametrize("evaluate", [bowls({"t": (1.3,)}), cliff])
def test_cut_at_any_line_a_search_grows_alike(
    evaluate: Evaluator, tmp_path: Path
) -> None:
    study, whole = make_study({"t": (1.3,)}), Recorder(evaluate)
    run(study, tmp_path / "whole", whole)
    for stop in range(1, len(whole.calls)):
        folder, again = tmp_path / f"stop{stop}", Recorder(evaluate)

        stopped_and_resumed(partial(run, study, folder), again, stop)

        assert again.calls == whole.calls
        grown = (folder / "front.json").read_bytes()
        assert grown == (tmp_path / "whole" / "front.json").read_bytes()


def test_without_standard_errors_nothing_is_promised() -> None:
    study = make_study({"t": (1.3,)})
    X = np.linspace(0, 1, 8)[:, None]
    y = np.square(X[:, 0] - 1.3)
    fitted = fit_surrogate(X, y, stderr=None, link=Link(*LOSS.ends), bounds=study.box)
    unknown = replace(fitted, covariance=np.full((3, 3), np.nan), process=None)

    assert trial_round(study, {"t": fitted}, ()) != []
    assert trial_round(study, {"t": unknown}, ()) == []


@pytest.mark.parametrize(
    ("ahead", "noise", "upper"),
    [(0.051, 0.05, 1.0), (0.051, 1e-4, 1.2), (0.5, 0.05, 1.2), (-0.051, 1e-4, 1.0)],
)
def test_an_end_moves_for_what_is_better_as_measured_and_beyond_its_noise(
    ahead: float, noise: float, upper: float
) -> None:
    """Level but for the noise inside the box, and ahead of that by so much at 1.2."""
    study = make_study({"t": (1.3,)})
    places = np.linspace(0, 1, 12).tolist()
    values = {a: 1 + noise * (-1) ** i for i, a in enumerate(places)}
    known = [
        Evaluation(
            coefficients={"a": a}, task="t", role="design", value=value, stderr=noise,
            n=1, seconds=0.0, merge="m", definition="t",
        )
        for a, value in (values | {1.2: 1 - ahead}).items()
    ]  # fmt: skip
    rounds = [[("design", e.coefficients)] for e in known]

    box = settled(Box(study, study), rounds, known)

    assert box.study.bounds == {"a": (0.0, upper)}
    assert [*box.refused.values()] == ([1.2] if upper == 1 else [])
