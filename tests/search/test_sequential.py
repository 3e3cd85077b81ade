"""Whole searches that choose one merge after the other, on functions that are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Recorder, changed, front_of, line, logged, make_study, run

from mergekit_map.config.schema import SelectSpec
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.results.front import Reading
from mergekit_map.results.log import ASSESSING, by_merge, merge_key, open_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import fit_again, predict
from mergekit_map.search.checks import forecast
from mergekit_map.search.measure import missing_of
from mergekit_map.search.planning import design
from mergekit_map.search.study import Study
from mergekit_map.types import Measurement

CENTRES = {"one": (0.8, 0.3, 0.6), "two": (0.2, 0.7, 0.5), "three": (0.5, 0.1, 0.9)}


def study_of(n: int = 2, m: int = 2, **search: Any) -> Study:
    """Search n models by m tasks, with all their anchors."""
    search = {"evaluations": 11, "remeasure": 2, **search}
    return make_study("abcd"[:n], list(CENTRES)[:m], **search)


def rippled(coefficients: Mapping[str, float], task: str) -> Measurement:
    """Measure a bowl with a ripple, which no quadratic fits."""
    c = np.array(list(coefficients.values()))
    centre = np.resize(CENTRES[task], len(c))
    value = 1 + ((c - centre) ** 2).sum() + 0.05 * math.sin(8 * c.sum())
    return Measurement(float(value), None, 1)


@pytest.fixture(autouse=True, scope="module")
def _stopped_clock() -> Iterator[None]:
    """Let every measurement take no time, so that logs can be the same bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mergekit_map.search.measure.time.perf_counter", lambda: 0.0)
        yield


def merges(*roles: str, folder: Path = Path()) -> list[tuple[float, ...]]:
    found = [e for e in logged(folder) if not roles or e.role in roles]
    return list(dict.fromkeys(tuple(e.coefficients.values()) for e in found))


@pytest.fixture(scope="module")
def whole(module_folder: Path) -> Path:
    """Search once, for what can be read from the files."""
    run(study_of(), module_folder, rippled)
    return module_folder


def test_what_is_foretold_is_predicted_from_earlier_lines_alone(whole: Path) -> None:
    study, log = study_of(), logged(whole)
    starts = {key: i for i, key in reversed(list(enumerate(e.key[0] for e in log)))}
    checked = 0
    for key, start in starts.items():
        lines = [e for e in log if e.key[0] == key]
        if lines[0].role == "front":
            assert all(e.foretold for e in lines)
        elif lines[0].role != "refinement":
            assert all(e.foretold is None for e in lines)
        else:
            fit = study.fit(log[:start])
            expected = predict(fit, study.vectors([lines[0].coefficients]))[0]
            for e in lines:
                one = expected[e.task]
                told = e.foretold.value, e.foretold.stderr
                assert told == pytest.approx((one.value, one.stderr), rel=1e-4)
                checked += 1
    assert checked == 2 * (11 - 6)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_first_design_has_two_merges_for_each_model_and_two_more(n: int) -> None:
    first = 2 * n + 2
    assert len(design(study_of(n, evaluations=40))) == first
    assert len(design(study_of(n, evaluations=first - 1))) == first - 1
    plain = study_of(n, evaluations=40, surrogate="quadratic")
    assert len(design(plain)) == max(n + 2, (n + 1) * (n + 2) // 2) + n


@pytest.mark.parametrize(("m", "evaluations"), [(1, 6), (3, 9)])
def test_a_search_measures_no_more_than_it_is_allowed_and_inspect_says(
    m: int, evaluations: int
) -> None:
    for remeasure in (0, 2):
        study = study_of(2, m, evaluations=evaluations, remeasure=remeasure)
        evaluate, folder = Recorder(rippled), Path(str(remeasure))

        run(study, folder, evaluate)

        most = forecast(study)
        searched = merges("anchor", "design", "refinement", folder=folder)
        assert len(searched) <= evaluations
        assert len(merges("front", folder=folder)) <= remeasure + 1
        assert len(evaluate.calls) == len(set(evaluate.calls)) <= most.measurements
        assert most.searched == evaluations


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "evaluations.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "m", "search"),
    [
        (2, 2, {}),
        (2, 2, {"strategy": "bayesian", "evaluations": 15}),
        (3, 3, {"strategy": "nested", "evaluations": 7}),
    ],
    ids=["sobol", "bayesian", "nested"],
)
def test_a_search_that_is_stopped_ends_byte_for_byte_the_same(
    n: int, m: int, search: dict[str, Any]
) -> None:
    """Stopped in the design, before the ending, and on the way through it."""
    study, whole = study_of(n, m, **search), Path("whole")
    run(study, whole, rippled)
    lines = lines_of(whole)
    first_front = [e.role for e in logged(whole)].index("front")
    for count in (first_front // 2, first_front - 3, len(lines) - 2):
        folder, evaluate = Path(f"{count}"), Recorder(rippled)
        folder.mkdir()
        (folder / "evaluations.jsonl").write_bytes(b"".join(lines[:count]) + b'{"torn')

        run(study, folder, evaluate)

        assert len(evaluate.calls) == len(lines) - count
        for name in ("evaluations.jsonl", "front.json"):
            assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_first_merges_that_fail_are_made_up_for() -> None:
    def partly(c: Mapping[str, float], task: str) -> Measurement:
        failed = Measurement(math.nan, None, 1)
        return failed if sum(c.values()) > 0.9 else rippled(c, task)

    run(study_of(surrogate="quadratic", evaluations=14), Path(), partly)

    assert len(merges("anchor", "design")) > 8


def test_a_search_that_goes_on_keeps_its_measurements_and_makes_none_twice() -> None:
    few, more = study_of(evaluations=7), study_of(evaluations=10)
    evaluate = Recorder(rippled)
    run(few, Path(), evaluate)
    before = lines_of(Path())

    result = run(more, Path(), evaluate)

    assert lines_of(Path())[: len(before)] == before
    assert len(evaluate.calls) == len(set(evaluate.calls))
    assert 7 < len(merges("anchor", "design", "refinement")) <= 10
    assert {s.quality.n for s in result.surrogates.values()} == {len(merges())}
    # And once more nothing changes.
    whole = Path("front.json").read_bytes()
    again = Recorder(rippled)
    run(more, Path(), again)
    assert again.calls == []
    assert Path("front.json").read_bytes() == whole
    # What a smaller budget or another choice does not ask for is fitted all the same.
    other = replace(few, select=SelectSpec(prefer={next(iter(few.tasks)): 1}))
    for study in (few, other):
        run(study, Path(), evaluate)
        assert fit_again(front_of(), logged())


def test_recommended_points_are_measured_and_not_dominated(whole: Path) -> None:
    front, log = front_of(whole), by_merge(logged(whole))
    tasks = list(front.tasks)
    Y = {key: -np.array([found[t].value for t in tasks]) for key, found in log.items()}
    kept = non_dominated(np.array(list(Y.values())))

    recommended = {merge_key(front.points[i].coefficients) for i in front.recommended}

    assert recommended == {key for key, yes in zip(Y, kept, strict=True) if yes}
    assert len(recommended) >= 4
    assert all(front.chosen.is_measured(task) for task in tasks)
    assert merge_key(front.chosen.coefficients) in log


def test_all_that_was_measured_is_fitted_in_the_end_but_rivals(whole: Path) -> None:
    n_measured = len(merges(folder=whole))
    fits = [task.fit.n for task in front_of(whole).tasks.values()]
    assert fits == [n_measured, n_measured]

    points = [p for p in front_of(whole).points if not p.is_measured("one")][::9]
    rivals = [
        changed(e, role=role, value=value, coefficients=point.coefficients)
        for role, point in itertools.product(sorted(ASSESSING), points)
        for e, value in zip(logged(whole)[:2], (-5.0, math.nan), strict=True)
    ]
    for count in (20, len(lines_of(whole))):
        Path("evaluations.jsonl").write_bytes(b"".join(lines_of(whole)[:count]))
        with open_log(RunFolder(Path())) as log:
            for e in rivals:
                log.append(e)
        result = run(study_of(), Path(), rippled)

        assert {s.quality.n for s in result.surrogates.values()} == {n_measured}
        assert front_of() == front_of(whole)


def broken() -> Measurement:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("call", "outcome"),
    [(4, broken), (13, lambda: Measurement(math.nan, None, 1)), (23, broken)],
    ids=["anchor", "design", "front"],
)
def test_a_failure_in_any_round_stops_nothing(
    call: int, outcome: Callable[[], Measurement]
) -> None:
    study, asked = study_of(), Recorder(rippled)

    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        measured = asked(coefficients, task)
        return outcome() if len(asked.calls) == call else measured

    result = run(study, Path(), evaluate)

    assert len(asked.calls) >= call
    (failed,) = (e for e in logged() if e.failed)
    n = len(merges())
    assert {t: s.quality.n for t, s in result.surrogates.items()} == {
        t: n - (t == failed.task) for t in study.tasks
    }
    assert len(merges("anchor", "design", "refinement")) <= 11
    front = front_of()
    recommended = [front.points[i] for i in front.recommended]
    assert all(point.is_measured(*study.tasks) for point in recommended)
    # What broke is tried again, and what was no number is not.
    again = Recorder(rippled)
    run(study, Path(), again)
    assert (asked.calls[call - 1] in again.calls) == (outcome is broken)
    assert failed.error == ("out of memory" if outcome is broken else None)


def test_a_merge_that_fails_again_moves_nothing() -> None:
    study = study_of()
    _, merge = design(study)[-1]

    def partly(c: Mapping[str, float], task: str) -> Measurement:
        return broken() if (c, task) == (merge, "two") else rippled(c, task)

    run(study, Path(), partly)
    before, again = Path("front.json").read_bytes(), Recorder(partly)
    run(study, Path(), again)

    assert len(again.calls) == 1
    assert Path("front.json").read_bytes() == before


def test_merges_of_an_outage_are_all_tried_again() -> None:
    asked = Recorder(rippled)

    def until_design(c: Mapping[str, float], task: str) -> Measurement:
        measured = asked(c, task)
        return measured if len(asked.calls) <= 16 else broken()

    run(study_of(remeasure=0), Path(), until_design)
    failed = {e.key for e in logged() if e.failed and e.role == "refinement"}
    assert len(failed) > 2
    run(study_of(evaluations=9, remeasure=0), Path(), rippled)
    assert len(failed & {e.key for e in logged() if not e.failed}) == 2
    again = Recorder(rippled)
    run(study_of(remeasure=0), Path(), again)

    assert failed <= {e.key for e in logged() if not e.failed}
    assert all(again.calls.count(call) == 1 for call in again.calls)


def test_points_of_the_front_that_failed_once_leave_no_hole_in_it() -> None:
    def broken_at_the_front(c: Mapping[str, float], task: str) -> Measurement:
        return rippled(c, task) if task == "one" or len(merges()) < 7 else broken()

    for folder, measured in ((Path(), broken_at_the_front), (Path("quiet"), rippled)):
        run(study_of(evaluations=6, remeasure=4), folder, measured)
        run(study_of(), folder, rippled)

    assert sum(e.failed for e in logged()) == 5
    assert len(front_of().points) > 0.9 * len(front_of(Path("quiet")).points)


def test_the_choice_of_one_task_is_the_best_that_any_search_measured() -> None:
    for evaluations in (12, 6):
        run(study_of(m=1, evaluations=evaluations), Path(), rippled)

        found = min(logged(), key=lambda e: e.value)
        assert merge_key(front_of().chosen.coefficients) == found.key[0]


def test_a_chosen_merge_that_was_judged_before_is_fitted(whole: Path) -> None:
    lines = [e for e in logged(whole) if e.role != "front"]
    judged = [changed(e, foretold=None) for e in logged(whole) if e.role == "front"]
    log = "".join(f"{e.model_dump_json()}\n" for e in [*lines, *judged])
    Path("evaluations.jsonl").write_text(log)

    run(study_of(), Path(), rippled)

    assert front_of().tasks == front_of(whole).tasks


def test_choices_within_limits_that_were_measured_are_points_of_the_front() -> None:
    select = SelectSpec(require={"one": 1.05}, prefer={"two": 1})

    run(study_of(select=select), Path(), rippled)

    chosen = {e.key[0] for e in logged() if e.role == "front"}
    assert len(chosen) >= 2
    assert chosen <= {merge_key(p.coefficients) for p in front_of().points}


def test_what_only_judged_a_search_is_no_measurement_of_it() -> None:
    study, corner = make_study("ab", "t"), {"a": 1.0, "b": 1.0}
    judged = line(corner, "t", role="front")
    foretold = changed(judged, foretold=Reading(value=1.0, stderr=0.1))

    for known, missing in ((judged, True), (foretold, False)):
        assert bool(missing_of(study, [("refinement", corner)], [known])) is missing
    imported = [changed(judged, role="imported")]
    assert missing_of(study, [("front", corner)], imported)
    assert not missing_of(study, [("refinement", corner)], imported)
    asked = replace(study, documents={"t": 64})
    for n, missing in ((128, False), (32, True)):
        part = line(corner, "t", n=n, sampling=0.1)
        assert bool(missing_of(asked, [("refinement", corner)], [part])) is missing
