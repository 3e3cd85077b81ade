"""Choosing from a run folder: options, reasons, what is written; between points."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from fakes import front_of
from fronts import NOT_MEASURED, make_front, write_folder
from run_v1 import DATA
from runs import files_of, invoke

from mergekit_map import select_point
from mergekit_map.errors import ArtifactError, DesignError
from mergekit_map.results.records import write_record
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import (
    fit_all,
    is_fitted,
    locate_in,
    predict,
    read_evaluations,
)

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
    write_record(tmp_path / "front.json", front)
    write_folder(tmp_path, front)
    return tmp_path


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
    invoke("select", run, *options.split())

    front = json.loads((run / "front.json").read_text())
    assert front["selected"] == index
    assert f"the merge (point {index}) " in front["reason"].lower()
    recipe = (run / "recipe.yml").read_text()
    assert recipe.startswith(f"# {front['reason']}\n")
    assert yaml.safe_load(recipe)["models"][0]["weight"] == index / 100
    rows = list(csv.DictReader((run / "front.csv").read_text().splitlines()))
    assert [row["selected"] for row in rows].index("1") == index


def test_python_takes_what_the_command_line_takes(run: Path) -> None:
    assert select_point(run, index=np.int64(2)).index == 2
    require = {"math": np.float64(0.65)}  # as ``to_pandas`` has it
    assert select_point(run, require=require, prefer={"code": 1}).index == 1
    knee = select_point(run, knee=True)
    assert knee.index == 1  # with the limit of before
    knee = select_point(run, knee=True, limits=False)
    assert knee.front.reason.endswith("(point 2) was chosen as the knee of the front.")
    with pytest.raises(DesignError, match=r"not keep math at least 1 .*; relax a lim"):
        select_point(run, require={"math": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--require mth=1", "require: there is no task 'mth'; did you mean 'math'?"),
        ("--prefer math", "written as math=2,code=1, each task once; got 'math'"),
        ("--require math=101%", "short); relax a limit, nothing is measured"),
        ("--index 4", "the front has the points 0 to 3, not 4"),
        ("--not-worse-than coder", "what coder has, within noise (predicted "),
        ("--index 0 --not-worse-than base", "give 'not_worse_than' or 'index', not bo"),
    ],
)
def test_bad_choices_are_explained_and_change_nothing(
    run: Path, options: str, message: str
) -> None:
    before = files_of(run)

    result = invoke("select", run, *options.split(), code=2)

    assert message in " ".join(result.stderr.split())
    assert files_of(run) == before


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    """Copy a run of version 1, as if its front were predicted as today."""
    searched = shutil.copytree(DATA / "run", tmp_path / "run")
    front = front_of(searched)
    known = [e for e in read_evaluations(RunFolder(searched), front) if is_fitted(e)]
    X, places = (
        locate_in(front, (one.coefficients for one in some))
        for some in (known, front.points)
    )
    surrogates = fit_all(front.metrics, front.axis_bounds, "auto", X, known)
    rows = zip(front.points, predict(surrogates, places), strict=True)
    points = tuple(p.model_copy(update={"predicted": row}) for p, row in rows)
    update = {"points": points, "surrogate": "auto"}
    write_record(searched / "front.json", front.model_copy(update=update))
    return searched


def test_a_further_point_is_last_and_has_all_that_points_have(searched: Path) -> None:
    before = front_of(searched)

    selection = select_point(searched, require={"greeting": 0.6})

    after = front_of(searched)
    assert after.points[:-1] == before.points
    assert selection.index == after.selected == len(before.points)
    # Exactly at the limit, as that of the front's points which keep it is not.
    reading = after.chosen.readings("predicted")["greeting"]
    assert reading.value == pytest.approx(0.6, abs=1e-5)
    assert reading.value <= 0.6
    assert reading.stderr is not None
    assert not after.chosen.is_measured("greeting")
    written = RunFolder(searched).read_recipe(after.selected)
    assert (searched / "recipe.yml").read_text() == f"# {after.reason}\n{written}"
    rows = (searched / "front.csv").read_text().splitlines()
    assert len(rows) == len(after.points) + 1
    # The same choice again adds no point.
    assert select_point(searched, require={"greeting": 0.6}).index == selection.index
    assert front_of(searched).points == after.points


@pytest.mark.parametrize("files", [1, 2])
def test_a_further_point_that_was_interrupted_leaves_nothing(
    searched: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    before = files_of(searched)
    replace, left = os.replace, iter(range(files))

    def replace_some(*paths: Path) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt("killed")
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_some)
        with pytest.raises(KeyboardInterrupt, match="killed"):
            select_point(searched, require={"greeting": 0.6})

    select_point(searched, index=front_of(searched).selected)

    assert files_of(searched).keys() == before.keys()


@pytest.mark.parametrize("edit", [("density: 0.7", "density: 0.1"), ("ties", "della")])
def test_an_edited_recipe_is_no_pattern(searched: Path, edit: tuple[str, str]) -> None:
    first = searched / "recipes/000.yml"
    text = first.read_text()
    assert edit[0] in text
    first.write_text(text.replace(*edit))
    before = files_of(searched)

    for choice in ({"require": {"greeting": 0.6}}, {"index": 3}):
        with pytest.raises(ArtifactError, match="its settings are others"):
            select_point(searched, **choice)

    assert files_of(searched) == before
