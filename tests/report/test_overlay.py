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
from mergekit_map.report.overlay import (
    Scale,
    draw_each,
    draw_items,
    draw_together,
    fronts_content,
)
from mergekit_map.results.finished import read_finished
from mergekit_map.results.samples import Items

Make = Callable[[str], Path]


def items(values: Any) -> Items:
    known = {("", i): float(value) for i, value in enumerate(values)}
    return Items(known, dict.fromkeys(known, 1.0))


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


def test_the_volume_of_a_corner_is_its_share_of_the_box() -> None:
    # Ideal (1, 1) and nadir (0, 0), so that the box goes from -0.1 to 1 on both tasks.
    ends = np.array([[0.0, 1.0], [1.0, 0.0]])
    scale = Scale.of([ends])

    np.testing.assert_allclose(scale.reference, [-0.1, -0.1])
    assert scale.volume(np.array([[1.0, 1.0]])) == pytest.approx(1)
    assert scale.volume(ends) == pytest.approx((2 * 1.1 * 0.1 - 0.1**2) / 1.1**2)
    assert scale.volume(np.array([[-0.5, 0.7]])) == 0


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


def test_predictions_err_together_and_measurements_apart() -> None:
    rng = np.random.default_rng(4)
    Y, stderr = np.array([1.0, 2.0]), np.array([0.1, np.nan])

    together = draw_together(Y, np.array([0.1, 0.3]), rng)
    apart = draw_each(Y, stderr, rng)

    np.testing.assert_allclose(together[:, 1] - 2, 3 * (together[:, 0] - 1))
    assert apart[:, 0].std() == pytest.approx(0.1, rel=0.25)
    assert (apart[:, 1] == 2).all()  # how far it errs is not known


# --- pages ---------------------------------------------------------------------------


def test_a_search_is_as_large_as_itself(finished_run: Make, tmp_path: Path) -> None:
    run = finished_run("two")
    twin = copied(run, tmp_path / "twin")

    content = content_of(run, twin)

    assert [r["name"] for r in content["runs"]] == ["run", "twin"]
    measured, predicted = (content["volumes"][k] for k in ("measured", "predicted"))
    assert measured[0]["value"] == measured[1]["value"] > 0
    assert measured[1]["ahead"] == 0
    assert predicted[0]["value"] == predicted[1]["value"]
    assert content["left_out"] == []


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
    (said,) = content["left_out"]
    assert said.startswith("math is not compared: it measures something else")


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
