"""Several searches laid over one another: their volumes, and the tasks they share."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest

from mergekit_map.cli.main import main
from mergekit_map.errors import ArtifactError
from mergekit_map.report.overlay import draw_items, fronts_content, joint_box
from mergekit_map.results.finished import read_finished
from mergekit_map.types import Answers

Make = Callable[[str], Path]


def items(values: Any) -> Answers:
    return Answers(tuple(range(len(values))), tuple(values), (1.0,) * len(values))


def copied(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder))


def changed(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def content_of(*runs: Path) -> dict[str, Any]:
    found = fronts_content([read_finished(run) for run in runs])
    return dict(json.loads(json.dumps(found, allow_nan=False)))


# --- volumes -------------------------------------------------------------------------


def test_the_box_of_volumes_is_that_of_the_joint_front() -> None:
    ends = np.array([[0.0, 1.0], [1.0, 0.0]])
    dominated, flat = np.array([[-2.0, -3.0]]), np.array([[1.0, 5.0], [0.0, 5.0]])

    nadir, width = joint_box([ends, dominated])
    np.testing.assert_allclose([nadir, width], [[0, 0], [1, 1]])
    # The front is one point here, so that all merges make the range.
    nadir, width = joint_box([flat])
    np.testing.assert_allclose([nadir, width], [[0, 5], [1, 1]])


def test_values_drawn_from_items_err_as_their_mean_does() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(2, 60))
    found = draw_items([[items(values[0])], [items(values[1])]], -1.0, rng)

    assert found is not None
    drawn = np.hstack(found)
    np.testing.assert_allclose(drawn.mean(axis=0), -values.mean(axis=1), atol=0.05)
    np.testing.assert_allclose(
        drawn.std(axis=0), values.std(axis=1) / 60**0.5, rtol=0.25
    )
    # The same items for both, so that the difference errs as that of pairs does.
    paired = (values[0] - values[1]).std() / 60**0.5
    assert (drawn[:, 0] - drawn[:, 1]).std() == pytest.approx(paired, rel=0.25)


# --- pages ---------------------------------------------------------------------------


def test_a_search_is_as_large_as_itself(finished_run: Make, tmp_path: Path) -> None:
    run = finished_run("two")
    twin = copied(run, tmp_path / "twin")

    content = content_of(run, twin)

    assert [r["name"] for r in content["runs"]] == ["run", "twin"]
    one, other = content["volumes"]
    assert one["value"] == other["value"] > 0
    assert other["ahead"] == 0
    assert content["notes"] == []
    chosen = [*read_finished(run).front.chosen.coefficients.values()]
    assert [r["chosen"]["coefficients"] for r in content["runs"]] == [chosen] * 2
    # Their models are the same, so that each is drawn once.
    assert [r["label"] for r in content["references"]] == ["base", "a", "b", "soup"]


def test_corners_of_a_method_are_named_and_no_reference_points(
    finished_run: Make, tmp_path: Path
) -> None:
    run = copied(finished_run("three"), tmp_path / "ties")
    label = "a alone, TIES"
    changed(run / "front.json", lambda f: f["merges"][0].update(label=label))

    content = content_of(finished_run("three"), run)

    labels = [r["label"] for r in content["references"]]
    assert labels == ["base", "a", "b", "c", "soup"]
    merges = [m for each in content["runs"] for m in each["merges"]]
    assert [m["reference"] for m in merges if m["label"] == label] == [False]


def test_a_reference_point_that_measured_something_else_is_drawn_by_itself(
    finished_run: Make, tmp_path: Path
) -> None:
    run = finished_run("two")
    other = copied(run, tmp_path / "other")

    def move(front: dict[str, Any]) -> None:
        front["anchors"][1]["measured"]["math"]["value"] += 0.1

    changed(other / "front.json", move)

    labels = [r["label"] for r in content_of(run, other)["references"]]

    assert labels == ["base", "a", "b", "soup", "a (other)"]


def test_tasks_that_measure_something_else_are_left_out(
    finished_run: Make, tmp_path: Path
) -> None:
    run = finished_run("two")
    other = copied(run, tmp_path / "other")

    def redefine(content: dict[str, Any]) -> None:
        content["definitions"]["math"] = "of-another-task"

    log = other / "evaluations.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["task"] == "math":
            line["definition"] = "of-another-task"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed(other / ".state/manifest.json", redefine)

    content = content_of(run, other)

    assert [task["name"] for task in content["tasks"]] == ["code_loss"]
    (said,) = content["notes"]
    assert said.startswith("math is not compared: not every search")


def test_searches_that_share_no_task_are_refused(
    finished_run: Make, tmp_path: Path
) -> None:
    run = finished_run("two")
    other = copied(run, tmp_path / "other")
    changed(
        other / ".state/manifest.json",
        lambda m: m["definitions"].update(math="another", code_loss="another"),
    )

    with pytest.raises(ArtifactError, match=r"share no task: .*same documents"):
        content_of(run, other)


def test_the_command_writes_one_page_and_touches_no_search(
    finished_run: Make, tmp_path: Path
) -> None:
    runs = [copied(finished_run("two"), tmp_path / name) for name in ("a", "b")]
    before = [contents(run) for run in runs]
    command = ["report", *map(str, runs)]
    page = tmp_path / "both.html"

    result = click.testing.CliRunner().invoke(main, [*command, "--out", str(page)])

    assert result.exit_code == 0, result.output
    assert f"{page} (" in result.output
    assert [contents(run) for run in runs] == before
    (data,) = re.findall(r'id="content">(.*?)</script>', page.read_text(), re.DOTALL)
    assert json.loads(data)["name"] == "a and b"

    result = click.testing.CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert (runs[0] / "fronts.html").exists()


def contents(run: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}
