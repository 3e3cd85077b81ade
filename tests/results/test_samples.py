"""Records of items: scores that are kept, and which items a merge won."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mergekit_map.results.front import UNKNOWN, Reading
from mergekit_map.results.samples import SampleStore, are_of, mean_of, won_items
from mergekit_map.types import Answers, Measurement, MeasurementRequest, Metric

SCORE, LOSS = Metric(True, 0, 1), Metric(False, 0, None)


def items(*values: float) -> Answers:
    return Answers(tuple(range(len(values))), values, (1.0,) * len(values))


def test_what_one_wins_the_other_loses_and_a_loss_turns_it_around() -> None:
    rng = np.random.default_rng(0)
    one, other = items(*rng.normal(size=40)), items(*rng.normal(size=40))

    won, lost, level, most = won_items(one, other, SCORE)
    reversed_ = won_items(other, one, SCORE)

    assert (lost, won) == reversed_[:2] == won_items(one, other, LOSS)[:2]
    assert won + lost + level == 40
    assert dict(most) == {name: -ahead for name, ahead in reversed_[3]}


def test_items_are_compared_that_both_were_measured_on() -> None:
    assert won_items(items(1, 1), items(0, 1, 0, 0), SCORE)[:3] == (1, 0, 1)
    assert won_items(items(1), None, SCORE) is None


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
    answers = Answers(
        tuple(ids),
        tuple(VALUES[i] for i in ids),
        tuple(WEIGHTS[i] for i in ids),
        **more,
    )
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


def test_what_is_kept_in_memory_is_what_a_file_has(tmp_path: Path) -> None:
    records = kept(tmp_path)
    for value in (math.nan, math.inf, 1e300):
        records.write(request(), asked_with(value))

        assert records.answers(MERGE, "task") is None
        assert kept(tmp_path).answers(MERGE, "task") is None


def test_a_measurement_that_failed_is_not_taken_from_a_record(tmp_path: Path) -> None:
    put(tmp_path, replace(asked([0, 1]), value=math.nan))
    assert kept(tmp_path).find(request()) is None

    put(tmp_path, replace(asked([0, 1]), seconds=3.0))
    found = kept(tmp_path).find(request())
    assert found is not None
    assert found.seconds == 3.0


def asked_with(value: float) -> Measurement:
    measured = asked([0, 1])
    return replace(measured, answers=replace(measured.answers, values=(value, 1.0)))


HOSTILE: dict[str, Any] = {
    "ids out of order": {"ids": [1, 0, 2]},
    "negative ids": {"ids": [-1, 0, 1]},
    "ids that are no numbers": {"ids": ["0", "1", "2"]},
    "too few ids": {"ids": [0, 1]},
    "too many values": {"values": [1.0] * 4},
    "a value of text": {"values": [1.0, "x", 2.0]},
    "a value that is too large": {"values": [1.0, 1e51, 2.0]},
    "negative weights": {"weights": [1.0, -1.0, 1.0]},
    "a weight that is too small": {"weights": [1.0, 1e-300, 1.0]},
    "all of it": None,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_answers_that_nobody_wrote_are_none(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, asked([0, 1, 2]))
    content = json.loads(path.read_text())
    assert kept(tmp_path).answers(MERGE, "task") is not None
    change = HOSTILE[name]
    content["answers"] = {**content["answers"], **change} if change else change
    path.write_text(json.dumps(content))

    assert kept(tmp_path).answers(MERGE, "task") is None


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000])
def test_files_that_are_none_have_no_answers(text: str, tmp_path: Path) -> None:
    path = put(tmp_path, asked([0, 1]))
    path.write_text(text)

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


@pytest.mark.parametrize(
    "change",
    [
        {"value": "1"},
        {"value": 1e51},
        {"stderr": -1.0},
        None,  # an earlier version kept scores alone
    ],
)
def test_a_measurement_that_nobody_made_is_none(
    change: dict[str, Any] | None, tmp_path: Path
) -> None:
    path, asked = put(tmp_path, SOME, (1, 4)), request((1, 4))
    content = json.loads(path.read_text())
    assert kept(tmp_path).find(asked) == SOME
    content["measured"] = {**content["measured"], **change} if change else change
    path.write_text(json.dumps(content))

    assert kept(tmp_path).find(asked) is None
    usable = None if change else SOME.answers
    assert kept(tmp_path).answers(MERGE, "task") == usable


def test_half_a_character_of_an_answer_costs_no_measurement(tmp_path: Path) -> None:
    store, request = SampleStore(tmp_path, {}), MeasurementRequest((("a", 0.5),), "t")

    store.write(request, Measurement(1.0, None, 1, samples=({"answer": "\ud83d"},)))

    found = store.find(request)
    assert found is not None
    assert found.value == 1.0
