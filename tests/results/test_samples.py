"""Records of items: scores that are kept."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mergekit_map.results.front import UNKNOWN, Reading
from mergekit_map.results.samples import SampleStore, are_of, mean_of
from mergekit_map.types import Answers, Measurement, MeasurementRequest


def items(*values: float) -> Answers:
    return Answers(tuple(range(len(values))), values, (1.0,) * len(values))


@pytest.mark.parametrize(("exponential", "value"), [(False, 1.75), (True, 5.75460268)])
def test_scores_are_of_the_value_that_is_their_mean(
    exponential: bool, value: float
) -> None:
    answers = Answers((2, 5), (1.0, 4.0), (3.0, 1.0), exponential)

    assert are_of(answers, Reading.of(mean_of(answers), None))
    assert mean_of(answers) == pytest.approx(value)
    assert not are_of(answers, Reading.of(value + 0.01, 0.1))
    assert not are_of(answers, UNKNOWN)
    assert not are_of(None, Reading.of(value, 0.1))


MERGE = {"a": 0.1, "b": 0.7}
VALUES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
WEIGHTS = (1.0, 2.0, 3.0, 1.0, 2.0, 3.0)


def asked(ids: Sequence[int], **more: Any) -> Measurement:
    scores = (tuple(known[i] for i in ids) for known in (VALUES, WEIGHTS))
    answers = Answers(tuple(ids), *scores, **more)
    samples = tuple({"document": i} for i in ids)
    return Measurement(0.0, None, len(ids), samples=samples, answers=answers)


def kept(folder: Path, definition: str = "d") -> SampleStore:
    return SampleStore(folder, {"task": definition})


def request(
    documents: tuple[int, ...] | None = None, task: str = "task", **merge: float
) -> MeasurementRequest:
    return MeasurementRequest(tuple({**MERGE, **merge}.items()), task, documents)


def put(
    folder: Path, measurement: Measurement, ids: tuple[int, ...] | None = None
) -> Path:
    kept(folder).write(request(ids), measurement)
    [path] = (folder / "task").iterdir()
    return path


@pytest.mark.parametrize("ids", [(), (3,), tuple(range(6))])
def test_answers_are_read_as_they_were_written(
    ids: tuple[int, ...], tmp_path: Path
) -> None:
    measured = asked(ids, exponential=True)
    put(tmp_path, measured)

    found = kept(tmp_path).answers(MERGE, "task")

    assert found == measured.answers
    assert kept(tmp_path, "other").answers(MERGE, "task") is None
    assert kept(tmp_path).answers({**MERGE, "a": 0.2}, "task") is None


@pytest.mark.parametrize("value", [math.nan, 1e300])
def test_what_is_kept_in_memory_is_what_a_file_has(
    value: float, tmp_path: Path
) -> None:
    records, answers = kept(tmp_path), Answers((0, 1), (value, 1.0), (1.0, 1.0))

    records.write(request(), replace(asked([0, 1]), answers=answers))

    assert records.answers(MERGE, "task") is None
    assert kept(tmp_path).answers(MERGE, "task") is None


def test_a_measurement_that_failed_is_not_taken_from_a_record(tmp_path: Path) -> None:
    put(tmp_path, replace(asked([0, 1]), value=math.nan))
    assert kept(tmp_path).find(request()) is None

    put(tmp_path, replace(asked([0, 1]), seconds=3.0))
    assert kept(tmp_path).find(request()).seconds == 3.0


@pytest.mark.parametrize(
    "change",
    [
        {"ids": [1, 0, 2]},
        {"ids": [-1, 0, 1]},
        {"ids": ["0", "1", "2"]},
        {"ids": [0, 1]},
        {"values": [1.0, 1e51, 2.0]},
        {"weights": [1.0, -1.0, 1.0]},
        None,
    ],
)
def test_answers_that_nobody_wrote_are_none(
    change: dict[str, Any] | None, tmp_path: Path
) -> None:
    path = put(tmp_path, asked([0, 1, 2]))
    content = json.loads(path.read_text())
    assert kept(tmp_path).answers(MERGE, "task") is not None
    if isinstance(change, dict):
        change = {**content["answers"], **change}
    path.write_text(json.dumps({**content, "answers": change}))

    assert kept(tmp_path).answers(MERGE, "task") is None


MEASURED = Measurement(0.1 + 0.2, 0.01, 7, details={"more": 1.5}, seconds=1.25)
SOME = replace(MEASURED, answers=Answers((1, 4), (0.5, 2.0), (1.0, 1.0)))


@pytest.mark.parametrize("documents", [None, (1, 4)])
def test_a_measurement_is_found_by_its_merge_task_documents_and_definition(
    documents: tuple[int, ...] | None, tmp_path: Path
) -> None:
    asked, measured = request(documents), SOME if documents else MEASURED
    kept(tmp_path).write(asked, measured)

    assert kept(tmp_path).find(asked) == measured
    turned = replace(asked, merge=asked.merge[::-1])
    assert kept(tmp_path).find(turned) == measured
    assert kept(tmp_path, "other").find(asked) is None
    for other in (request(documents, a=0.2), request(documents, "another")):
        assert kept(tmp_path).find(other) is None
    for others in {None, (1, 4), (0, 4)} - {documents}:
        assert kept(tmp_path).find(request(others)) is None


def test_of_an_earlier_version_scores_alone_are_kept(tmp_path: Path) -> None:
    path = put(tmp_path, SOME, (1, 4))
    path.write_text(json.dumps({**json.loads(path.read_text()), "measured": None}))

    assert kept(tmp_path).find(request((1, 4))) is None
    assert kept(tmp_path).answers(MERGE, "task") == SOME.answers


def test_half_a_character_of_an_answer_costs_no_measurement(tmp_path: Path) -> None:
    put(tmp_path, replace(MEASURED, samples=({"answer": "\ud83d"},)))

    assert kept(tmp_path).find(request()) == MEASURED
