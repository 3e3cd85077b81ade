"""Evaluations measured elsewhere: read from a CSV file, fitted, not measured again."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from fakes import Recorder, logged, make_study
from runs import invoke, write_plain

from mergekit_map.errors import ConfigError
from mergekit_map.results.front import UNKNOWN
from mergekit_map.results.log import open_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.finish import found_front
from mergekit_map.search.loop import run_study
from mergekit_map.search.reuse import add_imported, read_imported
from mergekit_map.search.study import Evaluator, Study, StudyResult
from mergekit_map.types import Measurement, Metric
from mergekit_map.utils.progress import notifying
from mergekit_map.workflows.callbacks import Callback

# What is best on both alike is far from the soup, so that it is measured when chosen.
IDEAL = {"near": (0.8, 0.3), "far": (0.2, 0.9)}
FILE = Path("some.csv")


def study_of(names: str = "xy", **search: Any) -> Study:
    loss = Metric(higher_is_better=False, lower=0.0, upper=None)
    search = {"evaluations": 10, "remeasure": 0, **search}
    return make_study(names, list(IDEAL), ("base", "soup"), loss, **search)


def bowl(coefficients: Mapping[str, float], task: str) -> Measurement:
    x = np.array(list(coefficients.values()))
    return Measurement(1 + float(np.sum((x - IDEAL[task]) ** 2)), 0.01, 10)


def run(
    study: Study, evaluate: Evaluator, file: Path | None = None
) -> tuple[StudyResult, list[str]]:
    """Search as the pipeline does; returns the result and what was said."""
    listener = Mock(spec=Callback)
    with open_log(RunFolder(Path())) as log, notifying(listener):
        # It may have been read for another device than that of the folder.
        imported = read_imported(file, replace(study, merge="other")) if file else []
        add_imported(study, log, imported)
        result = run_study(study, evaluate, log)
    return result, [call.args[0] for call in listener.on_notice.call_args_list]


def write_csv(*rows: Mapping[str, Any]) -> Path:
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return FILE


def random_rows(n: int, seed: int = 7) -> list[dict[str, Any]]:
    points = np.random.default_rng(seed).uniform(size=(n, 2)).tolist()
    merges = [dict(zip("xy", point, strict=True)) for point in points]
    return [{**m, **{task: bowl(m, task).value for task in IDEAL}} for m in merges]


def test_imported_merges_replace_new_ones_once_where_they_are_fitted() -> None:
    apart = ({"x": x, "y": 0.0, "near": 3.0, "far": 4.0} for x in (2.0, 0.0))
    file = write_csv(*random_rows(5), *apart)
    evaluate, again = Recorder(bowl), Recorder(bowl)

    first, said = run(study_of(), evaluate, file)

    # 10 evaluations: 2 anchors, 5 imported, 3 new; and the chosen point.
    assert len(evaluate.calls) == 2 * (10 - 5 + 1)
    assert {s.quality.n for s in first.surrogates.values()} == {10 + 1}
    assert "14 measurements of 7 merges imported" in said[0]
    assert "5 lie within the bounds and are fitted" in said[0]  # the base is measured
    before = logged()
    assert before[11].coefficients == {"x": 2.0, "y": 0.0}

    twice, (notice,) = run(study_of(), again, file)
    without, silence = run(study_of(), again)

    assert again.calls == []
    assert logged() == before
    assert first.front == twice.front == without.front
    assert notice.startswith("0 measurements of 0 merges imported")
    assert silence == []


def test_imports_of_one_task_replace_no_merge_and_stand_in_the_way_of_none() -> None:
    grid = [{"x": float(np.nextafter(one / 20, 2))} for one in range(21)]
    rows = [{**merge, "near": bowl(merge, "near").value} for merge in grid]
    _, said = run(study_of("x"), evaluate := Recorder(bowl), write_csv(*rows))
    assert "21 lie within the bounds" in said[0]  # the last but for rounding
    assert len(evaluate.calls) == 2 * 10


def test_all_that_is_imported_into_a_finished_search_is_fitted() -> None:
    run(study_of(), bowl)

    result, _ = run(study_of(), bowl, write_csv(*random_rows(20)))

    assert min(s.quality.n for s in result.surrogates.values()) >= 10 + 20


def test_what_was_measured_here_is_kept_and_an_earlier_import_is_not() -> None:
    rows = random_rows(4)
    run(study_of(), bowl, write_csv(*rows))
    before = logged()
    wrong = {"x": 0.5, "y": 0.5, "near": 7.0, "far": 1.25}

    _, notices = run(study_of(), bowl, write_csv(wrong, {**rows[0], "near": 2.0}))

    assert logged()[len(before)].value == 2.0
    assert notices[0].startswith("1 measurements of 1 merges imported")
    assert "3 measurements were known, and those here are kept" in notices[0]
    run(study_of(), bowl, write_csv(*rows))  # as at first
    again = [e for e in logged() if e.coefficients == before[0].coefficients]
    assert {e.task: e.value for e in again}["near"] == rows[0]["near"]


def test_an_imported_standard_error_of_0_is_unknown() -> None:
    row = {**random_rows(1)[0], "near stderr": 0.0, "far stderr": 0.1}

    found = read_imported(write_csv(row), study_of())

    assert {e.task: e.stderr for e in found} == {"near": None, "far": 0.1}


@pytest.mark.parametrize("tasks", [["near"], [*IDEAL]])
def test_what_is_compared_shown_or_chosen_is_measured_here(tasks: list[str]) -> None:
    study = make_study("xy", tasks, ("base", "soup"), evaluations=6, remeasure=0)
    claims = [{"x": x, "y": x} | dict.fromkeys(tasks, 0.5 + x) for x in (0.0, 0.2, 1.0)]

    result, _ = run(study, bowl, write_csv(*claims))

    here = [e for e in logged() if e.role != "imported"]
    assert claims[0].items() >= here[0].coefficients.items()
    assert {"x": 0.2, "y": 0.2} not in result.front
    corner = replace(result, front=[{"x": 1.0, "y": 1.0}], selected=0)
    (point,) = found_front(study, corner, logged()).points
    assert point.measured == dict.fromkeys(tasks, UNKNOWN)
    if len(tasks) == 1:
        assert result.front == [min(here, key=lambda e: e.value).coefficients]


def test_a_task_may_have_the_name_of_a_coefficient() -> None:
    study = study_of()
    study = replace(study, tasks={"x": study.tasks["near"]}, definitions={"x": "dx"})

    FILE.write_text("\ufeffx,y,x value\n0.25,0.5,1.5\n\n")
    (found,) = read_imported(FILE, study)

    assert (found.coefficients, found.value) == ({"x": 0.25, "y": 0.5}, 1.5)
    FILE.write_text("x,y,x\n0.25,0.5,1.5\n")
    with pytest.raises(ConfigError, match="the task's is x value"):
        read_imported(FILE, study)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("x,y,near\n", [r": a line of column names and a line per merge .* got 1"]),
        (
            "x,naer,far,far value\n0,0,1,1\n",
            [
                r":1: naer: there is no such column; .*'near'",
                r":1: far value: several columns hold it; remove all but one",
                r":1: y: a column for every coefficient is required",
            ],
        ),
        (
            "x,y,near,near stderr,near n\n0,zero,1,,\n1,,2,,\n0,1,nan,,\n0,1,-1,,\n"
            "0,1\n0,0,1,-1,\n0,0,1,,1e30\n",
            [
                r"7 problems in .*some.csv",
                r":2: y: .* valid number, .* got 'zero'",
                r":3: y: .* valid number, .* got ''",
                r":4: near value: .* a finite number, got 'nan'",
                r":5: near value: .* greater than or equal to 0, got '-1'",
                r":6: got 2 cells, not 5",
                r":7: near stderr: .* greater than or equal to 0, got '-1'",
                r":8: near n: .* valid integer, .* got '1e30'",
            ],
        ),
        ('x,y,near\n0,0,"1\n', [r"cannot be read as CSV in UTF-8"]),
        ("x,y,near,near stderr\n0,0,,0.1\n", [r":2: near value: .* got ''"]),
        ("x,y\n0,0\n", [r":1: a column 'TASK value' is required"]),
        ("x,y,near\n0,0,\n", [r":1: no row below has a value"]),
        ("x,y,near\n0,0,1\n0,0,2\n", [r":3: a line above has other values"]),
    ],
)
def test_lists_what_is_wrong_with_a_file(text: str, messages: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"some\.csv: cannot be read .* No such file"):
        read_imported(FILE, study_of())
    FILE.write_text(text)

    with pytest.raises(ConfigError, match="(?s)" + ".*".join(messages)):
        read_imported(FILE, study_of())


def test_the_command_imports_unless_a_search_is_nested(family: dict[str, Path]) -> None:
    write_plain(family)
    write_csv({"a": 0.25, "b": 0.5, "one": 1.0, "two": 1.0})

    result = invoke("search", "config.yml", "run", "--import", FILE)

    assert "2 measurements of 1 merges imported" in " ".join(result.stderr.split())
    assert [e.value for e in logged(Path("run")) if e.role == "imported"] == [1.0, 1.0]
    write_plain(family, strategy="nested")
    refused = invoke("search", "config.yml", "new", "--import", FILE, code=2)
    assert "'nested' chooses all of its merges" in " ".join(refused.output.split())
