"""Records of items: measurements and scores that are kept, and pairs of merges."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import line
from fronts import CODE, make_front, write_folder

from mergekit_map.results.front import UNKNOWN, Front, Reading
from mergekit_map.results.log import Role
from mergekit_map.results.paired import stderrs_of_differences
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import SampleStore, agree, with_differences
from mergekit_map.types import Answers, Measurement, MeasurementRequest


@pytest.mark.parametrize(("exponential", "value"), [(False, 1.75), (True, 5.75460268)])
def test_scores_are_of_the_value_that_is_their_mean(
    exponential: bool, value: float
) -> None:
    answers = Answers((2, 5), (1.0, 4.0), (3.0, 1.0), exponential)

    assert agree(answers, Reading.of(answers.mean, None))
    assert answers.mean == pytest.approx(value)
    assert agree(answers, Reading.of(answers.mean + 1e-7, 0.1))  # added in float32
    assert not agree(answers, Reading.of(value + 0.01, 0.1))
    assert not agree(answers, UNKNOWN)
    assert not agree(None, Reading.of(value, 0.1))


FOLDER = Path("samples")
MERGE = {"a": 0.1, "b": 0.7}
VALUES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
WEIGHTS = (1.0, 2.0, 3.0, 1.0, 2.0, 3.0)


def asked(ids: Sequence[int], **more: Any) -> Measurement:
    scores = (tuple(known[i] for i in ids) for known in (VALUES, WEIGHTS))
    answers = Answers(tuple(ids), *scores, **more)
    samples = tuple({"document": i} for i in ids)
    return Measurement(0.0, None, len(ids), samples=samples, answers=answers)


def kept(definition: str = "d") -> SampleStore:
    return SampleStore(FOLDER, {"task": definition})


def request(
    documents: tuple[int, ...] | None = None, task: str = "task", **merge: float
) -> MeasurementRequest:
    return MeasurementRequest(tuple({**MERGE, **merge}.items()), task, documents)


def put(measurement: Measurement) -> Path:
    kept().write(request(), measurement)
    [path] = (FOLDER / "task").iterdir()
    return path


@pytest.mark.parametrize("ids", [(), (3,), tuple(range(6))])
def test_answers_are_read_as_they_were_written(ids: tuple[int, ...]) -> None:
    measured = asked(ids, exponential=True)
    put(measured)

    assert kept().answers(MERGE, "task") == measured.answers
    assert kept("other").answers(MERGE, "task") is None
    assert kept().answers({**MERGE, "a": 0.2}, "task") is None


def test_a_measurement_that_failed_is_not_taken_from_a_record() -> None:
    put(replace(asked([0, 1]), value=math.nan))
    assert kept().read(request()) is None

    put(replace(asked([0, 1]), seconds=3.0))
    assert kept().read(request()).seconds == 3.0


@pytest.mark.parametrize(
    "change",
    [
        {"ids": [1, 0, 2]},
        {"ids": [-1, 0, 1]},
        {"ids": ["0", "1", "2"]},
        {"ids": [0, 1]},
        {"values": [1.0, 1e51, 2.0]},
        {"values": [1.0, None, 2.0]},  # as NaN is written
        {"weights": [1.0, -1.0, 1.0]},
        None,
    ],
)
def test_answers_that_nobody_wrote_are_none(change: dict[str, Any] | None) -> None:
    path = put(asked([0, 1, 2]))
    content = json.loads(path.read_text())
    assert kept().answers(MERGE, "task") is not None
    if isinstance(change, dict):
        change = {**content["answers"], **change}
    path.write_text(json.dumps({**content, "answers": change}))

    assert kept().answers(MERGE, "task") is None


MEASURED = Measurement(0.1 + 0.2, 0.01, 7, details={"more": 1.5}, seconds=1.25)
SOME = replace(MEASURED, answers=Answers((1, 4), (0.5, 2.0), (1.0, 1.0)))


@pytest.mark.parametrize("documents", [None, (1, 4)])
def test_a_measurement_is_found_by_its_merge_task_documents_and_definition(
    documents: tuple[int, ...] | None,
) -> None:
    asked, measured = request(documents), SOME if documents else MEASURED
    kept().write(asked, measured)

    assert kept().read(asked) == measured
    assert kept().read(replace(asked, merge=asked.merge[::-1])) == measured
    assert kept("other").read(asked) is None
    kept("other").write(asked, replace(measured, value=9.0))
    assert kept().read(asked) == measured
    for other in (request(documents, a=0.2), request(documents, "another")):
        assert kept().read(other) is None
    for others in {None, (1, 4), (0, 4)} - {documents}:
        assert kept().read(request(others)) is None


def test_half_a_character_of_an_answer_costs_no_measurement() -> None:
    put(replace(MEASURED, samples=({"answer": "\ud83d"},)))

    assert kept().read(request()) == MEASURED


# --- merges compared item by item -----------------------------------------------------

N = 30
RNG = np.random.default_rng(0)
HARD = RNG.normal(3, 0.5, size=N)
TOKENS = tuple(RNG.integers(8, 17, size=N).tolist())
SHIFTS = (0.0, 0.2, 0.5)  # of the losses of two merges, a=0 and a=0.01, and the base


def losses(shift: float) -> Answers:
    """Answer the same blocks, which are hard or easy for each merge."""
    values = HARD + shift + RNG.normal(size=N) / 20
    return Answers(tuple(range(N)), tuple(values.tolist()), TOKENS)


def keep(run: RunFolder, place: dict[str, float], answers: Answers) -> None:
    """Keep what a merge answered on the only task."""
    samples = tuple({"block": i} for i in answers.ids)
    measured = Measurement(0.0, None, N, samples=samples, answers=answers)
    asked = MeasurementRequest(tuple(place.items()), "code")
    SampleStore(run.samples(""), {}).write(asked, measured)


@pytest.fixture
def searched(tmp_path: Path) -> tuple[RunFolder, Front, list[Answers]]:
    """A search of two merges and the base, and what these answered."""
    answers = [losses(shift) for shift in SHIFTS]
    *rows, base = ([(each.mean, 0.1)] for each in answers)
    front = make_front([(r, r) for r in rows], {"base": base}, tasks={"code": CODE})
    write_folder(tmp_path, front)
    run = RunFolder(tmp_path)
    for merge, each in zip([*front.points, *front.anchors], answers, strict=True):
        keep(run, dict(merge.coefficients), each)
    return run, front, answers


def test_merges_are_compared_item_by_item(searched: Any) -> None:
    run, front, answers = searched

    found = with_differences(front, run, []).differences["code"]

    values, tokens = np.array([each.values for each in answers]), np.array(TOKENS)
    totals = (values * tokens).sum(axis=1, keepdims=True)
    left_out = (totals - values * tokens) / (tokens.sum() - tokens)
    influences = (left_out - left_out.mean(axis=1, keepdims=True)) * (N - 1) / N
    expected = stderrs_of_differences(influences, np.zeros(N, int))
    assert found.items == N
    assert not found.answers
    merges = np.array(found.merges)
    between = found.between(merges[:, None], merges)
    np.testing.assert_allclose(between, expected, rtol=1e-4)
    assert between[0, 1] < 0.03  # though the losses are known to 0.1


@pytest.mark.parametrize("of_other_items", [False, True])
def test_only_records_of_the_same_items_and_of_what_was_measured_count(
    searched: Any, of_other_items: bool
) -> None:
    run, front, (_, known, _) = searched
    # The file is of an earlier definition of the task, on texts as long as these.
    other = losses(0.2)
    if of_other_items:
        other = replace(known, ids=tuple(range(1, N + 1)))
    keep(run, {"a": 0.01, "b": 0.5}, other)

    assert with_differences(front, run, []).differences["code"].merges == (0, 2)


@pytest.mark.parametrize(
    ("roles", "merges"),
    [(["baseline", "opponent"], (0, 2)), (["opponent", "front"], (0, 1, 2))],
)
def test_what_rivals_measured_is_not_compared(
    searched: Any, roles: list[Role], merges: tuple[int, ...]
) -> None:
    run, front, _ = searched
    log = [
        line({"a": 0.01, "b": 0.5}, "code", role=role, n=N, merge="", definition="")
        for role in roles
    ]

    assert with_differences(front, run, log).differences["code"].merges == merges
