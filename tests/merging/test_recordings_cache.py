"""Recorded merges are bounded, and what is in use stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mergekit_map.cli.main import main
from mergekit_map.utils.files import write_json
from mergekit_map.utils.recordings_cache import (
    CONTENTS,
    kept,
    make_room,
    recordings_folder,
    set_limit,
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


def cache(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["cache", *arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_what_was_not_used_for_longest_goes_first() -> None:
    for number, name in enumerate(["old", "newest", "newer"]):
        keep(name, used=[1, 3, 2][number])
    set_limit(3 * SIZE)

    assert make_room(SIZE) == ""
    assert names() == ["newest", "newer"]
    assert make_room(2 * SIZE) == ""
    assert names() == ["newest"]


def test_nothing_is_removed_where_that_would_not_do() -> None:
    keep("one", used=1)
    set_limit(2 * SIZE)

    reason = make_room(2 * SIZE + 1)

    assert "200 kB are wanted" in reason
    assert "may take 200 kB" in reason
    assert names() == ["one"]


_USER = """
import sys
from pathlib import Path
from mergekit_map.utils.recordings_cache import mark_in_use
mark_in_use(Path(sys.argv[1]))
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no mapped file")
def test_what_another_process_uses_stays_until_that_is_killed() -> None:
    folder = keep("one", used=1)
    command = [sys.executable, "-c", _USER, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"holds\n"
        set_limit(0)
        make_room()
        assert kept()[0].in_use
        assert "one stays: a process uses it" in cache("--remove", "all")
        user.kill()

    make_room()

    assert names() == []


def test_leftovers_of_killed_processes_are_removed() -> None:
    left = recordings_folder() / ".key.abc.partial"
    left.mkdir(parents=True)

    make_room()

    assert not left.exists()


def test_the_command_lists_removes_and_bounds(tmp_path: Path) -> None:
    keep("one", used=1)
    keep("two", used=2)
    adapter = tmp_path / "home" / "adapters" / "0123" / "base_lora"
    adapter.mkdir(parents=True)
    (recordings_folder() / "three").mkdir()

    shown = cache()
    assert "three damaged" in shown
    assert "recorded merges take 200 kB of at most" in shown
    assert "ties of base and fr" in shown
    assert "merged: base_lora" in shown

    assert "removed 0123: merged: base_lora" in cache("--remove", "0123")
    assert "removed one" in cache("--remove", "one")
    assert "removed three: damaged" in cache("--remove", "three")
    assert names() == ["two"]
    assert "of at most 50 kB" in cache("--limit", "50kB")
    assert names() == []
    assert "of at most 50 kB" in cache()
    assert "of at most 50 kB" not in cache("--limit", "auto")


def test_a_key_that_is_not_there_is_an_error() -> None:
    keep("abcdef", used=1)

    result = CliRunner().invoke(main, ["cache", "--remove", "abcdeg"])

    assert result.exit_code == 2
    assert "nothing in the cache has the key 'abcdeg'; did you mean" in result.output
