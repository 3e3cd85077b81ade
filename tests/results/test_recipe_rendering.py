"""What is refused in the identity of a merge, and in a recipe of another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fronts import NOT_MEASURED, make_front, write_folder

from mergekit_map.errors import ArtifactError
from mergekit_map.results.recipe_rendering import recipe_of
from mergekit_map.results.run_folder import RunFolder

FRONT = make_front([([(0.5, 0.1), (2.0, 0.1)], NOT_MEASURED)] * 3)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    write_folder(tmp_path, FRONT)
    return RunFolder(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("configuration", {"x": [1e999]}, "identity: Out of range float values"),
        ("models", {"a\x1b": "1"}, r"models.a\\x1b.\[key\]: a line of text"),
        ("models", {"a": 1}, "models.a"),
        ("coefficients", {"a": [["models", -1]]}, "coefficients.a.0.1"),
        ("configuration", [], "configuration"),
    ],
)
def test_an_identity_is_finite_printable_and_of_its_shape(
    folder: RunFolder, key: str, value: Any, message: str
) -> None:
    content = json.loads(folder.manifest.read_text())
    content["identity"][key] = value
    folder.manifest.write_text(json.dumps(content))

    with pytest.raises(ArtifactError, match=message):
        folder.read_manifest()


def test_a_recipe_is_read_wherever_its_models_lie(folder: RunFolder) -> None:
    path = folder.recipe(1)
    path.write_text(path.read_text().replace("model: one", "model: /elsewhere/one"))

    assert "/elsewhere/one" in recipe_of(folder, FRONT, 1)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("weight: 0.01", "weight: 0.02", "its coefficients or settings are others"),
        ("linear", "ties", "its coefficients or settings are others"),
        ("weight: 0.5", "weight: &w 0.5\nx: *w", "an alias in it"),
        ("merge_method: linear", "[" * 5000, "it is nested too deep"),
        ("- model: other\n  weight: 0.5", "", "its coefficients or settings are"),
    ],
)
def test_a_recipe_of_another_merge_is_refused(
    folder: RunFolder, before: str, after: str, message: str
) -> None:
    path = folder.recipe(1)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))

    with pytest.raises(ArtifactError, match=message):
        recipe_of(folder, FRONT, 1)
