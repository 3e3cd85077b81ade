"""A merge is recorded once, and opened by whoever merges it, until it is removed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from mergekit.options import MergeOptions
from runs import invoke
from safetensors.torch import load_file
from test_in_memory import OPTIONS, assert_equal_states, config, space_of

from mergekit_map.errors import MergeError
from mergekit_map.merging import recording
from mergekit_map.merging.in_memory import resident_merge
from mergekit_map.merging.recording import (
    Recorded,
    open_recorded,
    record,
    recording_key,
)
from mergekit_map.merging.space import MergeSpace
from mergekit_map.utils.files import write_json
from mergekit_map.utils.recordings_cache import (
    CONTENTS,
    kept,
    recordings_folder,
    remove_leftovers,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, empty."""
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))
    return recordings_folder()


@pytest.fixture
def space(family: dict[str, Path]) -> MergeSpace:
    return space_of(config("dare_ties", family))


def merged(found: Recorded, seed: int = 0) -> dict[str, torch.Tensor]:
    """Merge every tensor, as a process without a model does."""
    names = found.weights.slopes
    point = {name: 0.3 + 0.1 * (i + seed) for i, name in enumerate(names)}
    tensors = load_file(found.checkpoint / "model.safetensors")
    for name, replay in found.replays.items():
        replay.write(found.weights.of(name, replay.models, point), tensors[name])
    return tensors


def test_the_seed_is_part_of_what_draws_alone(family: dict[str, Path]) -> None:
    other = OPTIONS.model_copy(update={"random_seed": 8})
    for method, draws in [("ties", False), ("dare_ties", True)]:
        space = space_of(config(method, family))
        assert (recording_key(space, other) != recording_key(space, OPTIONS)) is draws


@pytest.mark.parametrize("damage", [lambda old: old[:-9], lambda old: bytes(len(old))])
@pytest.mark.parametrize(
    "file", ["replays*", "weights.pt", "model/*.safetensors", "contents.json"]
)
def test_what_is_not_whole_is_recorded_anew(
    space: MergeSpace, file: str, damage: Callable[[bytes], bytes]
) -> None:
    folder = record(space, OPTIONS)
    mapped = merged(open_recorded(folder))
    wanted = {name: tensor.clone() for name, tensor in mapped.items()}
    path = next(folder.glob(file))
    path.write_bytes(damage(path.read_bytes()))

    assert record(space, OPTIONS) == folder

    assert_equal_states(merged(open_recorded(folder)), wanted)


def test_nothing_is_kept_of_models_that_change_meanwhile(
    space: MergeSpace, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = iter(["one", "other", "other"])
    monkeypatch.setattr(recording, "recording_key", lambda *_: next(keys))

    with pytest.raises(MergeError, match="models changed while they were merged"):
        record(space, OPTIONS)

    assert [path.name for path in home.iterdir()] in ([], [".one.lock"])


def test_writing_into_the_model_leaves_the_recording_as_it_is(
    space: MergeSpace, home: Path
) -> None:
    with resident_merge(space, OPTIONS) as merge:
        (folder,) = (path for path in home.iterdir() if path.is_dir())
        files = [*folder.rglob("*.safetensors"), *folder.glob("*.pt")]
        before = {path: path.read_bytes() for path in files}
        merge.write(space.generic(0.3))
        assert len(before) == 3
        for path, content in before.items():
            assert path.read_bytes() == content


def test_two_at_once_record_one_merge_once(
    space: MergeSpace, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, folders = recording.write_checkpoint, list[Path]()

    def counted(merge: Any, folder: Path, options: MergeOptions) -> None:
        folders.append(folder)
        time.sleep(0.2)  # until the other waits
        write(merge, folder, options)

    monkeypatch.setattr(recording, "write_checkpoint", counted)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: record(space, OPTIONS), range(2))

    assert one == other
    assert len(folders) == 1
    assert [path for path in home.iterdir() if path.is_dir()] == [one]


def full(*_: object) -> None:
    raise RuntimeError("file write failed")  # as torch says it


NO_ROOM = r"kB are needed in .*merges, where 100 kB are free .* MERGEKIT_MAP_HOME"


@pytest.mark.parametrize(
    ("function", "does", "text"),
    [
        ("mergekit_map.merging.recording.free_bytes", lambda: 100_000, NO_ROOM),
        ("torch.save", full, "file write failed"),
    ],
    ids=["no room", "full disk"],
)
def test_a_recording_for_which_there_is_no_room_is_refused_and_leaves_nothing(
    space: MergeSpace,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    does: Callable[..., object],
    text: str,
) -> None:
    monkeypatch.setattr(function, does)
    with pytest.raises(MergeError, match=text):
        record(space, OPTIONS)

    assert [path for path in home.iterdir() if path.is_dir()] == []


def test_a_recording_that_is_there_is_read_by_whoever_may_not_write(
    space: MergeSpace, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("read only")

    folder = record(space, OPTIONS)
    monkeypatch.setattr(recording, "FileLock", refuse)
    monkeypatch.setattr("os.utime", refuse)

    assert record(space, OPTIONS) == folder
    shutil.rmtree(folder)
    with pytest.raises(MergeError, match=r"cannot be recorded in .*: read only; if"):
        record(space, OPTIONS)
    assert home.is_dir()


def keep(name: str) -> None:
    """Make a folder of 100 kB as a recording has it."""
    folder = recordings_folder() / name
    contents = {"method": "ties", "models": ["/models/base", "/models/fr"]}
    write_json(folder / CONTENTS, contents)
    rest = 100_000 - (folder / CONTENTS).stat().st_size
    (folder / "tensors").write_bytes(bytes(rest))


def cache(*arguments: str, code: int = 0) -> str:
    return " ".join(invoke("cache", *arguments, code=code).output.split())


def test_leftovers_of_killed_processes_are_removed() -> None:
    left = recordings_folder() / ".key.abc.partial"
    left.mkdir(parents=True)

    remove_leftovers()

    assert not left.exists()


def test_the_command_lists_and_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    keep("one")
    keep("two")
    Path("home", "adapters", "0123", "base_lora").mkdir(parents=True)
    (recordings_folder() / "three").mkdir()

    shown = cache()
    assert "three damaged" in shown
    assert "recorded merges take 200 kB; " in shown
    assert "ties of base and fr" in shown
    assert "merged: base_lora" in shown

    assert "removed 0123: merged: base_lora" in cache("--remove", "0123")
    assert "removed one" in cache("--remove", "one")
    assert "removed three: damaged" in cache("--remove", "three")
    assert [one.key for one in kept()] == ["two"]
    missing = "nothing in the cache has the key 'three'; see"
    assert missing in cache("--remove", "three", code=2)
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=OSError("disk is full")))
    cache("--remove", "all", "--remove", "all")
    assert kept() == []
