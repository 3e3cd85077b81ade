"""The gains and items of each point of a report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mergekit_map.report.data import report_content
from mergekit_map.results.answer import answer
from mergekit_map.results.finished import FinishedSearch, read_finished
from mergekit_map.results.front import Merge
from mergekit_map.results.samples import write_samples
from mergekit_map.types import Answers, Measurement

Make = Callable[[str], Path]


@pytest.fixture(params=["two", pytest.param("three", marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest, finished_run: Make) -> FinishedSearch:
    return read_finished(finished_run(request.param))


def content_of(run: FinishedSearch) -> dict[str, Any]:
    content = report_content(run)
    return json.loads(json.dumps(content))


def test_gains_of_a_point_are_those_of_the_answer_if_it_were_chosen(
    run: FinishedSearch,
) -> None:
    content = content_of(run)

    for index, point in enumerate(content["points"]):
        front = run.front.model_copy(update={"selected": index})
        found = answer(front)
        assert point["gains"] == [[*row] for row in found.table.rows]
        assert point["sample"] == found.sample


def test_items_are_counted_against_every_anchor_and_say_no_text(
    run: FinishedSearch, tmp_path: Path
) -> None:
    measured = next(
        i for i, p in enumerate(run.front.points) if p.is_measured(*run.front.tasks)
    )
    point = run.front.points[measured]
    copied = Path(shutil.copytree(run.folder.path, tmp_path / "run"))
    again = read_finished(copied)
    task, metric = next(iter(run.front.metrics.items()))
    folder = again.folder.samples(again.manifest.merge) / task
    for merge in (point, *run.front.anchors):
        write_records(folder, merge, task, again.manifest.definitions[task])

    content = content_of(again)

    (found,) = [one for one in content["items"] if one["point"] == measured]
    for anchor, row in zip(run.front.anchors, found["against"], strict=True):
        won, lost, level, most = row[0]
        ahead = metric.sign * (point.measured[task].value - anchor.measured[task].value)
        assert (won, lost, level) == (
            (4, 0, 0) if ahead > 0 else (0, 4, 0) if ahead < 0 else (0, 0, 4)
        )
        assert all(value == pytest.approx(ahead, rel=0.01) for _, value in most)
        assert row[1:] == [None] * (len(run.front.tasks) - 1)
    assert "a secret" not in json.dumps(content)


def write_records(folder: Path, merge: Merge, task: str, definition: str) -> None:
    """Write records of four documents that all say the same."""
    value = merge.measured[task].value
    assert value is not None
    answers = Answers((0, 1, 2, 3), (value,) * 4, (1.0,) * 4)
    measured = Measurement(
        value, 0.0, 4, samples=({"text": "a secret"},), answers=answers
    )
    write_samples(folder, merge.coefficients, measured, definition)
