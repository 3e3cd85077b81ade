"""Several searches laid over one another: their volumes, and the tasks they share."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import change_json, files_of, invoke, lines

from mergekit_map.errors import ArtifactError
from mergekit_map.report.overlay import fronts_content, joint_box
from mergekit_map.results.surrogates import read_finished


@pytest.fixture
def other(two: Path) -> Path:
    """Another copy of the search of two tasks."""
    return Path(shutil.copytree(two, "other"))


def content_of(*runs: Path) -> dict[str, Any]:
    found = fronts_content([read_finished(run) for run in runs])
    return dict(json.loads(json.dumps(found, allow_nan=False)))


def test_the_box_of_volumes_is_that_of_the_joint_front() -> None:
    dominated, flat = np.array([[-2.0, -3.0]]), np.array([[1.0, 5.0], [0.0, 5.0]])

    nadir, width = joint_box([np.array([[0.0, 1.0], [1.0, 0.0]]), dominated])
    np.testing.assert_allclose([nadir, width], [[0, 0], [1, 1]])
    # The front is one point here, so that all merges make the range.
    nadir, width = joint_box([flat])
    np.testing.assert_allclose([nadir, width], [[0, 5], [1, 1]])


def test_a_search_is_as_large_as_itself(two: Path, other: Path) -> None:
    content = content_of(two, other)

    assert [r["name"] for r in content["runs"]] == ["run", "other"]
    one, twin = content["volumes"]
    assert one["value"] == twin["value"] > 0
    assert twin["ahead"] == 0
    assert content["notes"] == []
    chosen = [*read_finished(two).front.chosen.coefficients.values()]
    assert [r["chosen"]["coefficients"] for r in content["runs"]] == [chosen] * 2
    # Their models are the same, so that each is drawn once where it measured the same.
    labels = ["base", "a", "b", "soup"]
    assert [r["label"] for r in content["references"]] == labels
    path, moved = other / "front.json", {"value": 0.123, "stderr": 0.02}
    change_json(path, lambda f: f["anchors"][1]["measured"].update(math=moved))
    found = [r["label"] for r in content_of(two, other)["references"]]
    assert found == [*labels, "a (other)"]


def test_tasks_that_measure_something_else_are_left_out(two: Path, other: Path) -> None:
    manifest, log = other / ".state/manifest.json", other / "evaluations.jsonl"
    definition = next(e["definition"] for e in lines(other) if e["task"] == "math")
    log.write_text(log.read_text().replace(definition, "another"))
    change_json(manifest, lambda m: m["definitions"].update(math="another"))

    content = content_of(two, other)

    assert [task["name"] for task in content["tasks"]] == ["code_loss"]
    (said,) = content["notes"]
    assert said.startswith("math is not compared: not every search")
    change_json(manifest, lambda m: m["definitions"].update(code_loss="another"))
    with pytest.raises(ArtifactError, match=r"share no task: .*same documents"):
        content_of(two, other)


def test_the_command_writes_one_page_and_touches_no_search(two: Path) -> None:
    runs = [Path(shutil.copytree(two, name)) for name in ("a", "b")]
    before = [files_of(run) for run in runs]
    page = Path("both.html")

    assert f"{page} (" in invoke("report", *runs, "--out", page).output
    assert [files_of(run) for run in runs] == before
    (data,) = re.findall(r'id="content">(.*?)</script>', page.read_text(), re.DOTALL)
    assert json.loads(data)["name"] == "a and b"

    invoke("report", *runs)
    assert (runs[0] / "fronts.html").exists()
