"""Choosing from a run folder made by hand: options, reasons, what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml
from fronts import NOT_MEASURED, as_json, make_front, write_folder
from nested_runs import files_of, invoke

from mergekit_map import select_point
from mergekit_map.errors import ConfigError, DesignError

POINTS = [
    [(0.70, 0.010), (2.80, 0.02)],
    [(0.66, 0.010), (2.40, 0.02)],
    [(0.61, 0.010), (2.20, 0.02)],
    [(0.50, None), (2.10, None)],
]
ANCHORS = {
    "base": [(0.10, 0.01), (9.0, 0.01)],
    "mathematician": [(0.72, 0.01), (3.0, 0.01)],
    "coder": [(0.30, 0.01), (2.0, 0.01)],
    "baseline": [(0.46, None), (2.4, None)],  # errs nobody knows how much
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    front = make_front([(p, NOT_MEASURED) for p in POINTS], ANCHORS, selected=3)
    write(tmp_path, as_json(front))
    write_folder(tmp_path, front)
    return tmp_path


def _number(recipe: str) -> int:
    """Tell whose recipe it is: the first weight of point i is i / 100."""
    return round(100 * yaml.safe_load(recipe)["models"][0]["weight"])


def write(run: Path, front: dict[str, Any]) -> None:
    (run / "front.json").write_text(json.dumps(front))


def select(run: Path, *options: str, code: int = 0) -> click.testing.Result:
    return invoke("select", run, *options, code=code)


@pytest.mark.parametrize(
    ("options", "index"),
    [
        ("--index 0", 0),
        ("--prefer code=1 --scalarization achievement", 3),
        ("--knee", 2),
        ("--no-limits", 2),
        ("--require math=83%", 1),
        ("--not-worse-than base,baseline --require math=0.6", 2),
    ],
)
def test_the_options_choose_and_the_recipe_says_why(
    run: Path, options: str, index: int
) -> None:
    select(run, *options.split())

    front = json.loads((run / "front.json").read_text())
    assert front["selected"] == index
    assert front["reason"].startswith(f"The merge (point {index}) ")
    recipe = (run / "recipe.yml").read_text()
    assert recipe.startswith(f"# {front['reason']}\n")
    assert _number(recipe) == index
    rows = list(csv.DictReader((run / "front.csv").read_text().splitlines()))
    assert [row["selected"] for row in rows].index("1") == index


def test_python_takes_what_the_command_line_takes(run: Path) -> None:
    selection = select_point(run, require={"math": 0.65}, prefer={"code": 1})

    assert selection.index == 1
    knee = select_point(run, knee=True)
    assert knee.index == 1  # with the limit of before
    knee = select_point(run, knee=True, limits=False)
    assert knee.front.reason == "The merge (point 2) is the knee of the front."
    with pytest.raises(ConfigError, match="give 'prefer' or 'knee', not both"):
        select_point(run, prefer={"math": 1}, knee=True)
    with pytest.raises(DesignError, match=r"not keep math at least 1 .*; relax a lim"):
        select_point(run, require={"math": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--require mth=1", "require: there is no task 'mth'; did you mean 'math'?"),
        ("--prefer math", "written as math=2,code=1, each task once; got 'math'"),
        ("--require math=101%", "short); relax a limit, nothing is measured"),
        ("--index 4", "the front has the points 0 to 3, not 4"),
        ("--not-worse-than bas", "there is no 'bas' to compare with; did you mean 'ba"),
        ("--not-worse-than coder", "what coder has, within noise (predicted "),
        ("--index 0 --not-worse-than base", "give 'not_worse_than' or 'index', not bo"),
        ("--scalarization max", "'max' is not one of 'sum', 'achievement'"),
    ],
)
def test_bad_choices_are_explained_and_change_nothing(
    run: Path, options: str, message: str
) -> None:
    before = files_of(run)

    result = select(run, *options.split(), code=2)

    assert message in " ".join(result.stderr.split())
    assert files_of(run) == before
