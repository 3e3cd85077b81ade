"""What a report says of each point, against what is said of it when it is chosen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mergekit_map.report.data import points_content
from mergekit_map.results.finished import FinishedSearch, read_finished
from mergekit_map.results.gain_sentences import gains_in_words
from mergekit_map.results.gains import gains
from mergekit_map.results.narrative import verdicts_in_words
from mergekit_map.results.samples import write_samples
from mergekit_map.types import Measurement

Make = Callable[[str], Path]


@pytest.fixture(params=["two", pytest.param("three", marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest, finished_run: Make) -> FinishedSearch:
    return read_finished(finished_run(request.param))


def test_each_point_is_judged_as_if_it_were_chosen(run: FinishedSearch) -> None:
    content = json.loads(json.dumps(points_content(run)))
    sentences, said = content["sentences"], content["said"]
    whole = [bool(p.is_measured(*run.front.tasks)) for p in run.front.points]

    assert len(said) == len(run.front.points)
    assert {True, False} == set(whole)
    for index, one in enumerate(said):
        front = run.front.model_copy(update={"selected": index})
        verdicts = tuple(sentences[place] for place in one["verdicts"])
        assert verdicts == verdicts_in_words(front)
        assert [sentences[place] for place in one["gained"]] == gains_in_words(front)
    assert len(set(sentences)) == len(sentences)


def test_gains_are_those_of_the_package(run: FinishedSearch) -> None:
    content = points_content(run)
    said, rivals = content["said"], content["rivals"]

    for index, one in enumerate(said):
        found = gains(run.front.model_copy(update={"selected": index}))
        assert [r["label"] for r in rivals] == [r.label for r in found.rivals]
        for r, rival in enumerate(found.rivals):
            for t, task in enumerate(run.front.tasks):
                gained, shown = rival.tasks[task], one["ahead"][r][t]
                place = rivals[r]["of"][t]
                assert run.front.anchors[place].label == gained.other
                assert shown[:2] == pytest.approx(
                    (gained.amount, gained.stderr), rel=1e-4
                )
                assert shown[2] == gained.verdict
        assert one["kept"] == pytest.approx(list(found.kept.values()), rel=1e-4)


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
        write_records(folder, merge.coefficients, merge.measured[task].value)

    content = points_content(again)

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


def write_records(folder: Path, coefficients: dict[str, float], value: float) -> None:
    """Write records of four documents that all say the same."""
    records = tuple(
        {"document": i, "value": value, "text": "a secret"} for i in range(4)
    )
    measured = Measurement(value=value, stderr=0.0, n=4, samples=records)
    write_samples(folder, coefficients, measured)
