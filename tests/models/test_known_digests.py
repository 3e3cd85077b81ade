"""Large files are read once, and again when they were written."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from mergekit_map.models import files
from mergekit_map.models.files import digest_of_file


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read; every file counts as large."""
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(files, "_LARGE", 1)
    found: list[Path] = []

    def hashed(path: Path) -> str:
        found.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(files, "sha256_of_file", hashed)
    return found


def test_a_file_is_read_once(tmp_path: Path, read: list[Path]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1")
    other.write_bytes(b"2")

    digests = [digest_of_file(path) for path in (one, other, one, other)]

    assert read == [one, other]
    assert digests[:2] == digests[2:]
    assert digests[0] == hashlib.sha256(b"1").hexdigest()


def test_what_was_written_is_read_again_though_its_time_is_set_back(
    tmp_path: Path, read: list[Path]
) -> None:
    path = tmp_path / "one"
    path.write_bytes(b"1")
    before = path.stat()
    digest_of_file(path)
    time.sleep(0.02)  # some file systems count time in hundredths

    with path.open("r+b") as file:
        file.write(b"2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns

    assert digest_of_file(path) == hashlib.sha256(b"2").hexdigest()
    assert read == [path, path]


@pytest.mark.parametrize(
    ("table", "content", "count"),
    [
        ("home/digests.json", "", 1),
        ("home/digests.json", "[]", 1),
        ("home/digests.json", '{"PATH": {"state": 1}}', 1),
        ("home/digests.json", '{"PATH": 1}', 1),
        ("home", "a file: no table can be written", 2),
    ],
)
def test_a_damaged_table_costs_time_alone(
    table: str, content: str, count: int, tmp_path: Path, read: list[Path]
) -> None:
    path = tmp_path / "one"
    path.write_bytes(b"1")
    (tmp_path / table).parent.mkdir(exist_ok=True)
    (tmp_path / table).write_text(content.replace("PATH", str(path)))

    assert digest_of_file(path) == digest_of_file(path)

    assert read == [path] * count
