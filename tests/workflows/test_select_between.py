"""Choosing what lies between the points of a front: a further point, and its recipe."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fakes import front_of
from nested_runs import files_of
from run_v1 import DATA

from mergekit_map import select_point
from mergekit_map.errors import ArtifactError
from mergekit_map.results.finished import read_evaluations
from mergekit_map.results.recipe_rendering import recipe_of
from mergekit_map.results.records import write_record
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import fit_all, is_fitted, locate, predict


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Copy a run of version 1, as if its front were predicted as today."""
    run = shutil.copytree(DATA / "run", tmp_path / "run")
    front = front_of(run)
    known = [e for e in read_evaluations(RunFolder(run), front) if is_fitted(e)]
    bounds, names = front.axis_bounds, front.coefficients
    X = locate((e.coefficients for e in known), names, {}, bounds)
    surrogates = fit_all(front.metrics, bounds, "auto", X, known)
    places = locate((point.coefficients for point in front.points), names, {}, bounds)
    points = tuple(
        point.model_copy(update={"predicted": readings})
        for point, readings in zip(
            front.points, predict(surrogates, places), strict=True
        )
    )
    update = {"points": points, "surrogate": "auto"}
    write_record(run / "front.json", front.model_copy(update=update))
    return run


def test_a_further_point_is_last_and_has_all_that_points_have(run: Path) -> None:
    before = front_of(run)

    selection = select_point(run, require={"greeting": 0.6})

    after = front_of(run)
    assert after.points[:-1] == before.points
    assert selection.index == after.selected == len(before.points)
    # Exactly at the limit, as that of the front's points which keep it is not.
    reading = after.chosen.readings("predicted")["greeting"]
    assert reading.value == pytest.approx(0.6, abs=1e-5)
    assert reading.value <= 0.6
    assert reading.stderr is not None
    assert not after.chosen.is_measured("greeting")
    written = RunFolder(run).read_recipe(after.selected)
    assert (run / "recipe.yml").read_text() == f"# {after.reason}\n{written}"
    assert len((run / "front.csv").read_text().splitlines()) == len(after.points) + 1


@pytest.mark.parametrize("files", [1, 2])
def test_a_further_point_that_was_interrupted_leaves_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    before = files_of(run)
    replace, left = os.replace, iter(range(files))

    def replace_some(*paths: Path) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt("killed")
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_some)
        with pytest.raises(KeyboardInterrupt, match="killed"):
            select_point(run, require={"greeting": 0.6})

    select_point(run, index=front_of(run).selected)

    assert files_of(run).keys() == before.keys()


def test_the_same_choice_again_adds_no_point(run: Path) -> None:
    first = select_point(run, prefer={"greeting": 1, "code": 0.8})
    count = len(front_of(run).points)

    again = select_point(run, prefer={"greeting": 1, "code": 0.8})

    assert count == 11
    assert again.index == first.index
    assert len(front_of(run).points) == count


@pytest.mark.parametrize("index", [0, 4])
def test_a_recipe_is_what_the_search_wrote_for_such_a_point(
    tmp_path: Path, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(DATA / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    path = run / f"recipes/{index:03d}.yml"
    written = path.read_text()
    if index:  # only the first is read
        path.write_text(written.replace("density: 0.7", "density: 0.1"))

    text = recipe_of(RunFolder(Path("run")), front_of(run), index)

    # Above is the version that wrote it.
    assert text.splitlines()[1:] == written.splitlines()[1:]


@pytest.mark.parametrize("edit", [("density: 0.7", "density: 0.1"), ("ties", "della")])
def test_a_recipe_that_was_edited_is_no_pattern(
    run: Path, edit: tuple[str, str]
) -> None:
    first = run / "recipes/000.yml"
    text = first.read_text()
    assert edit[0] in text
    first.write_text(text.replace(*edit))
    before = files_of(run)

    for choice in ({"require": {"greeting": 0.6}}, {"index": 3}):
        with pytest.raises(ArtifactError, match="its settings are others"):
            select_point(run, **choice)

    assert files_of(run) == before
