"""The cache lists what is kept, and removes it when told to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from nested_runs import invoke

from mergekit_map.utils.files import write_json
from mergekit_map.utils.recordings_cache import (
    CONTENTS,
    kept,
    recordings_folder,
    remove_leftovers,
)

SIZE = 100_000


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))


def keep(name: str, used: float) -> Path:
    """Make a folder as a recording has it, used at some time."""
    folder = recordings_folder() / name
    contents = {"method": "ties", "models": ["/models/base", "/models/fr"]}
    write_json(folder / CONTENTS, contents)
    rest = SIZE - (folder / CONTENTS).stat().st_size
    (folder / "tensors").write_bytes(bytes(rest))
    os.utime(folder, (used, used))
    return folder


def names() -> list[str]:
    return [one.key for one in kept()]


def cache(*arguments: str, code: int = 0) -> str:
    return " ".join(invoke("cache", *arguments, code=code).output.split())


def test_leftovers_of_killed_processes_are_removed() -> None:
    left = recordings_folder() / ".key.abc.partial"
    left.mkdir(parents=True)

    remove_leftovers()

    assert not left.exists()


def test_the_command_lists_and_removes(tmp_path: Path) -> None:
    keep("one", used=1)
    keep("two", used=2)
    adapter = tmp_path / "home" / "adapters" / "0123" / "base_lora"
    adapter.mkdir(parents=True)
    (recordings_folder() / "three").mkdir()

    shown = cache()
    assert "three damaged" in shown
    assert "recorded merges take 200 kB; " in shown
    assert "ties of base and fr" in shown
    assert "merged: base_lora" in shown

    assert "removed 0123: merged: base_lora" in cache("--remove", "0123")
    assert "removed one" in cache("--remove", "one")
    assert "removed three: damaged" in cache("--remove", "three")
    assert names() == ["two"]
    missing = "nothing in the cache has the key 'three'; see"
    assert missing in cache("--remove", "three", code=2)
    cache("--remove", "all", "--remove", "all")
    assert names() == []
