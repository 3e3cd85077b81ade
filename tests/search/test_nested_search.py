"""Nested MAP on metrics whose answer is known, with no model anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Recorder, line, logged, make_study, run
from quick_fronts import fronts_of_few_points

from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.front import Front, axis_bounds
from mergekit_map.results.log import open_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import fit_again
from mergekit_map.search.checks import forecast, search_problems
from mergekit_map.search.nested import best_models, scaled_losses
from mergekit_map.search.study import Study, StudyResult
from mergekit_map.types import Measurement, Metric

NAN, INF = math.nan, math.inf
NAMES = "abcd"
OPTIMUM = dict(zip(NAMES, (0.9, 0.6, 0.7, 0.8), strict=True))
Function = Callable[[Mapping[str, float], str], float]


def own_optimum(c: Mapping[str, float], task: str) -> float:
    """Depend on one model alone: each has a best weight, whatever the others have."""
    return (c[task] - OPTIMUM[task]) ** 2


def own_corner(c: Mapping[str, float], task: str) -> float:
    """Squared distance to the single model of the task: all tasks trade off."""
    return sum((c[n] - (n == task)) ** 2 for n in c)


def order_of(result: StudyResult) -> list[Any]:
    """Return what was merged with what, as a configuration has it."""
    return list(json.loads(json.dumps(result.order)))


def measuring(function: Function = own_optimum) -> Recorder:
    return Recorder(lambda c, task: Measurement(function(c, task), None, 10))


def study_of(names: Sequence[str] = NAMES, **search: Any) -> Study:
    search = {"strategy": "nested", "evaluations": 8, "remeasure": 0, **search}
    return make_study(names, names, **search)


def shared_task(c: Mapping[str, float], task: str) -> float:
    """One model gets a to 0.5 and no further; two of different pairs get it to 0."""
    return 1 - c["a"] / 2 - c["c"] / 2 if task == "a" else own_optimum(c, task)


def test_a_pair_that_is_best_as_the_base_is_searched_on() -> None:
    def only_b_helps(c: Mapping[str, float], task: str) -> float:
        return (c["b"] - 0.6) ** 2 if task == "b" else c["a"] ** 2 + c["c"]

    study = study_of("abc", order=[["a", "c"], "b"], surrogate="quadratic")

    result = run(study, Path(), measuring(only_b_helps))

    chosen = result.front[result.selected]
    assert chosen == pytest.approx({"a": 0, "b": 0.6, "c": 0}, abs=0.01)


@pytest.mark.parametrize(
    ("function", "limit", "order"),
    [
        # Less than a has where a pair of tasks counts alike.
        (own_corner, 0.45, None),
        # Out of reach of the first pair, and left to the pairs after it.
        (shared_task, 0.3, [["a", "b"], ["c", "d"]]),
    ],
)
def test_limits_that_a_merge_keeps_are_kept(
    function: Function, limit: float, order: Any
) -> None:
    study = replace(study_of(order=order), select=SelectSpec(require={"a": limit}))

    with fronts_of_few_points(40):
        result = run(study, Path(), measuring(function))

    assert function(result.front[result.selected], "a") <= limit + 1e-9


def test_a_preference_holds_within_pairs_beside_models_to_be_no_worse_than() -> None:
    found = []
    for index, rivals in enumerate((None, "base")):
        select = SelectSpec(prefer={"a": 9, "b": 1}, not_worse_than=rivals)
        study = replace(study_of(order=[["a", "b"], ["c", "d"]]), select=select)
        result = run(study, Path(str(index)), measuring(own_corner))
        found.append(result.groups["pair-1"])

    assert found[0] == found[1]


def test_a_nested_search_of_one_task_that_is_repeated_measures_nothing() -> None:
    def noisy(c: Mapping[str, float], _: str) -> float:
        noise = 0.05 * math.sin(1e4 * c["a"] + 1.3e4 * c["b"])
        return (c["a"] - 0.7) ** 2 + (c["b"] - 0.4) ** 2 + 0.6 * c["c"] + noise

    study = study_of("abc", remeasure=3, order=[["a", "b"], "c"], seed=3).of_tasks("a")
    for evaluate in (measuring(noisy), again := measuring(noisy)):
        run(study, Path(), evaluate)

    assert again.calls == []


def test_an_outage_that_is_over_does_not_change_the_pairs() -> None:
    def failing_once(c: Mapping[str, float], task: str) -> Measurement:
        if len(evaluate.calls) == 6:
            raise RuntimeError("out of memory")
        return Measurement(own_corner(c, task), None, 10)

    evaluate = Recorder(failing_once)
    for recorder in (evaluate, again := measuring(own_corner)):
        run(make_study("abc", "abc", strategy="nested", seed=0), Path(), recorder)
        with open_log(RunFolder(Path())) as log:
            log.append(line({"a": 0.0, "b": 0.0, "c": 1.0}, "a", -3, role="opponent"))

    assert again.calls == []


def test_two_models_with_weights_of_two_layers_cost_no_more_than_said() -> None:
    soup = {"soup": dict.fromkeys(NAMES, 0.5)}
    study = replace(study_of(), anchors=study_of().anchors | soup)
    run(study, Path(), evaluate := measuring())
    assert len({merge for merge, _ in evaluate.calls}) <= forecast(study).searched + 1


def test_measures_what_the_paper_counts() -> None:
    evaluate = measuring(own_corner)
    # A preference, so that no soup is chosen, and that of the last pair is a new one.
    prefer = {"a": 3.0, "b": 2.0, "c": 5.0, "d": 2.0}
    study = replace(study_of(remeasure=2), select=SelectSpec(prefer=prefer))

    result = run(study, Path(), evaluate)

    # 6 anchors on 4 tasks. Two pairs of 8 merges on 2 tasks, of which the base and two
    # singles are anchors; the chosen merge of each. A pair of pairs of 8 merges on 4
    # tasks, of which the base is an anchor and two were chosen, on 2 tasks so far; two
    # points of its front, and the chosen one where that is none of them.
    first, second, last = 6 * 4, 2 * (5 * 2 + 2), 8 * 4 - 4 - 2 * 2
    assert (len(evaluate.calls) - (first + second + last)) in {2 * 4, 3 * 4}
    assert len(evaluate.calls) == len(set(evaluate.calls))
    assert sorted(order_of(result)) == [["a", "b"], ["c", "d"]]


def test_a_model_may_have_the_name_of_a_pair() -> None:
    study = study_of(["a", "b", "pair-1"], order=["a", ["b", "pair-1"]])

    assert list(run(study, Path(), measuring(own_corner)).groups) == ["a", "pair-1'"]


def test_models_of_closest_losses_are_paired() -> None:
    ideal = {"a": 0.5, "b": 0.1, "c": 0.48, "d": 0.9}

    def evaluate(c: Mapping[str, float], task: str) -> float:
        # The single model of the task leaves this share of the worst loss, 1.
        return 1 - (1 - ideal[task]) * c[task] * (2 - c[task])

    metric = Metric(higher_is_better=False, lower=0.0, upper=None)
    study = study_of(surrogate="quadratic", metric=metric)

    assert order_of(run(study, Path(), measuring(evaluate))) == ["d", ["b", ["a", "c"]]]


def test_the_files_say_what_was_predicted_of_flat_merges() -> None:
    result = run(study_of(remeasure=3), Path(), measuring(own_corner))

    content = Front.model_validate_json(Path("front.json").read_bytes())

    for point in content.points:
        for task in NAMES:
            expected = own_corner(point.coefficients, task)
            assert point.readings("predicted")[task].value == pytest.approx(expected)
    # Points of the front, and measured merges that none beats.
    assert sum(point.is_measured("a") for point in content.points) >= 3
    assert fit_again(content, logged()).keys() == {*NAMES}
    # A single model is not among the merges of the last pair.
    by_label = {anchor.label: anchor for anchor in content.anchors}
    assert by_label["a"].readings("predicted")["a"].value is None
    assert by_label["a"].measured["a"].value == 0
    assert by_label["base"].readings("predicted")["a"].value == pytest.approx(1)
    assert list(content.groups) == list(result.groups)
    # By symmetry the sum of all losses is smallest where every weight is 1/4: 1/2 in
    # each pair, and 1/2 of each pair.
    chosen = result.front[result.selected]
    assert list(chosen.values()) == pytest.approx([0.25] * 4, abs=0.03)


@pytest.mark.parametrize(
    "order",
    [
        [["a", "b"], "c"],
        [["a", "b"], ["c", "a"]],
        ["a", "b", "c", "d"],
        [["a", "b"], ["c", {"d": 1}]],
    ],
)
def test_orders_that_are_no_binary_tree_of_all_models(order: list[Any]) -> None:
    (problem,) = search_problems(study_of(order=order))

    assert problem.key == ("map", "search", "order")
    assert "with each of a, b, c and d once; got [" in problem.message
    bounds = dict.fromkeys("abcd", (0.2, 0.8))
    (apart,) = search_problems(replace(study_of(), bounds=bounds))
    assert apart.key == ("map", "search", "bounds")
    (alone,) = search_problems(study_of("a"))
    assert alone.key == ("map", "search", "strategy")
    assert "only 'a' is searched; use map" in alone.message


def test_each_task_belongs_to_the_model_that_is_best_on_it() -> None:
    Y = np.array([[0.9, 0.2, -3.0, 1.0], [0.5, 0.8, -1.0, 1.0], [0.1, 0.3, -0.5, 0.0]])

    # Models and tasks are independent; of equals the first one owns it.
    assert best_models(Y).tolist() == [0, 1, 2, 0]
    # A failed measurement is never the best.
    assert best_models(np.array([[NAN, NAN], [-9.0, NAN]])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "singles", "ideals", "losses"),
    [
        # An accuracy with the ideal 1, and a loss (turned) with the ideal 0.
        ([0.6, -1.0], [[0.6, -4.0], [0.2, -1.0]], [1.0, 0.0], [0.5, 0.25]),
        ([1.0, -6.0], [[0.6, -4.0], [0.2, -1.0]], [1.0, 0.0], [0.0, 1.5]),
        # Without an ideal the best single model stands for it, and what was not
        # measured is as bad as the worst.
        ([3.0, NAN], [[2.0, 2.0], [6.0, 6.0], [NAN, NAN]], [INF, INF], [0.75, 1.0]),
        # A task that tells nothing apart has no loss.
        ([1.0, 1.0], [[1.0, 1.0], [1.0, 1.0]], [1.0, INF], [0.0, 0.0]),
        ([3.0, 3.0], [[NAN, NAN], [NAN, NAN]], [1.0, INF], [0.0, 0.0]),
    ],
)
def test_losses_go_from_the_ideal_to_the_worst_single_model(
    values: Any, singles: Any, ideals: Any, losses: Any
) -> None:
    found = scaled_losses(np.array(values), np.array(singles), np.array(ideals))

    assert found == pytest.approx(np.array(losses))


def test_products_of_weights_stay_within_the_bounds() -> None:
    bounds = dict.fromkeys(NAMES, (0.0, 1.5))

    assert axis_bounds(("a", "b and c"), bounds) == {"a": (0, 1.5), "b and c": (0, 1)}
