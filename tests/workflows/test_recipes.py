"""Recipes of a run folder: read wherever their models lie, refused where damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from fronts import NOT_MEASURED, make_front, write_folder

from mergekit_map.errors import ArtifactError
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.workflows.select import recipe_of

FRONT = make_front([([(0.5, 0.1), (2.0, 0.1)], NOT_MEASURED)] * 3)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    write_folder(tmp_path, FRONT)
    return RunFolder(tmp_path)


def test_what_is_left_of_1_is_the_last_weight_of_a_recipe(folder: RunFolder) -> None:
    content = json.loads(folder.manifest.read_text())
    identity, path = content["identity"], folder.recipe(0)
    identity["remainder"] = identity["coefficients"].pop("b")
    folder.manifest.write_text(json.dumps(content))
    path.write_text(path.read_text().replace("weight: 0.5", "weight: 1.0"))

    recipe = yaml.safe_load(recipe_of(folder, FRONT, 1))

    assert [model["weight"] for model in recipe["models"]] == [0.01, 1 - 0.01]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("weight: 0.5", "weight: &w 0.5\nx: *w", "an alias or tag"),
        ("weight: 0.5", "weight: !!float 0.5", "an alias or tag"),
        ("merge_method: linear", "[" * 100_000, "it is nested too deep"),
        ("merge_method: linear", "x: 1" + ":0" * 200 + ".5", "a huge number"),
        ("merge_method: linear", "x: 0x" + "f" * 5000, "Exceeds the limit"),
        ("- model: other\n  weight: 0.5", "", "no recipe of this search"),
        ("weight: 0.5", "weight: 0.5  # \x1b[2J", r"000\.yml cannot .* a line of text"),
    ],
)
def test_a_recipe_that_is_damaged_is_refused(
    folder: RunFolder, before: str, after: str, message: str
) -> None:
    path = folder.recipe(0)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))

    with pytest.raises(ArtifactError, match=message):
        recipe_of(folder, FRONT, 1)
