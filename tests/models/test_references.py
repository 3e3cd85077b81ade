"""Names of models, as mergekit reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from mergekit.common import ModelReference

from mergekit_map.models.references import Reference, absolute_paths, with_places

NAMES = ["gpt2", "org/model@main", "/a/b/c", "./a/", "base+org/lora", "b@1+l@2"]


@pytest.mark.parametrize("text", NAMES)
def test_a_reference_is_taken_apart_as_mergekit_does(text: str) -> None:
    theirs = ModelReference.parse(text)
    parts = [part for part in (theirs.model, theirs.lora) if part is not None]

    ours = Reference.parse(text)

    assert [(p.path, p.revision) for p in ours.parts] == [
        (p.path, p.revision) for p in parts
    ]
    assert "+".join(map(str, ours.parts)) == str(theirs) == text
    assert str(ours.adapter) == str(theirs.lora)


def test_folders_that_are_there_become_absolute_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "there").mkdir()

    def merge(there: str) -> dict[str, object]:
        names = ("loop", f"{there}+org/adapter", "org/model@main")
        models = [{"model": name} for name in names]
        return {"base_model": there, "models": models, "tokenizer": {"source": "union"}}

    found = absolute_paths(merge("there"), tmp_path)

    assert found == merge(str(tmp_path / "there"))
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "union").mkdir()  # no model, whatever lies here
    assert absolute_paths(merge("link"), tmp_path) == found


def test_a_folder_below_one_that_no_reference_can_name_is_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "me@home" / "c++"
    (here / "there").mkdir(parents=True)
    monkeypatch.chdir(here)

    for name in ("there", str(here / "there")):
        placed = with_places({"base_model": "x"}, {"x": name})
        assert absolute_paths(placed, here) == {"base_model": "./there"}
