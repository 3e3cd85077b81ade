"""Numbers of a run folder that no search writes: one sentence where they are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click.testing
import pytest

from mergekit_map.cli.main import main
from mergekit_map.errors import ArtifactError
from mergekit_map.results.log import read_log

DATA = Path(__file__).parents[1] / "data" / "run_v1"


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work beside a copy of a run."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(DATA / "run", tmp_path / "run")


def put(content: Any, place: str, value: str) -> str:
    """Write JSON with something else in one place."""
    *path, last = (int(p) if p.isdigit() else p for p in place.split("/"))
    part = content
    for key in path:
        part = part[key]
    assert last in part or isinstance(last, int)
    part[last] = "HERE"
    return json.dumps(content).replace('"HERE"', value)


FAR = ("1e308", "-1e308", "1e51", "NaN", "Infinity")


@pytest.mark.parametrize(
    ("number", "value"),
    [*(("value", v) for v in (*FAR, "null")), *(("stderr", v) for v in FAR)],
)
def test_a_front_predicts_finite_numbers(number: str, value: str, run: Path) -> None:
    front = json.loads((run / "front.json").read_text())
    task = next(iter(front["tasks"]))
    place = f"points/0/predicted/{task}/{number}"
    (run / "front.json").write_text(put(front, place, value))

    result = click.testing.CliRunner().invoke(main, ["report", "run"])

    assert result.exit_code == 2, result.output
    assert f"front.json cannot be used: points.0.predicted.{task}" in result.output


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(("value", v) for v in FAR[:3]),  # of a failed measurement it is none
        *(("stderr", v) for v in (*FAR, "-0.1", '"0.1"')),
        *(("coefficients/NAME", v) for v in (*FAR, "null")),
        *(("seconds", v) for v in (*FAR, "null")),
        *(("n", v) for v in (*FAR, "null", "-1")),
    ],
)
def test_a_log_holds_finite_numbers(place: str, value: str, run: Path) -> None:
    first, *others = (run / "evaluations.jsonl").read_text().splitlines()
    line = json.loads(first)
    place = place.replace("NAME", next(iter(line["coefficients"])))
    text = "\n".join([put(line, place, value), *others]) + "\n"
    (run / "evaluations.jsonl").write_text(text)

    with pytest.raises(ArtifactError, match=r"jsonl:1: not an evaluation: [a-z]+.*: "):
        list(read_log(run / "evaluations.jsonl"))
