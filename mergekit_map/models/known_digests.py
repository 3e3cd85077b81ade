"""Digests of large files, remembered between runs.

A file is taken for what it was as long as the file system says that it is the same one
and was not written since: its size, inode, and times of change, of which a program can
set one but not the other. Reading is what takes the time: seconds for every model.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mergekit_map.errors import ArtifactError
from mergekit_map.files import (
    cache_home,
    read_json_or_nothing,
    sha256_of_file,
    write_atomically,
)

_LARGE = 1 << 24  # bytes; smaller files are read in no time

# A file may be written again within a tick of its clock: it is remembered later.
_SETTLED = 2_000_000_000  # nanoseconds


def digest_of_file(path: Path) -> str:
    """Hash a file as ``sha256_of_file`` does, or give what it was hashed to before."""
    before = _state(path)
    if before["size"] < _LARGE:
        return sha256_of_file(path)
    place = str(path.resolve())
    known = read_json_or_nothing(_table()).get(place)
    if isinstance(known, dict) and known.get("state") == before:
        return str(known["sha256"])
    found = sha256_of_file(path)
    settled = time.time_ns() - before["changed"] > _SETTLED
    if settled and _state(path) == before:
        _remember(place, {"state": before, "sha256": found})
    return found


def _state(path: Path) -> dict[str, int]:
    status = os.stat(path)
    return {
        "size": status.st_size,
        "device": status.st_dev,
        "inode": status.st_ino,
        "written": status.st_mtime_ns,
        "changed": status.st_ctime_ns,
    }


def _remember(place: str, entry: dict[str, Any]) -> None:
    """Add to the table; what is lost where two do so at once is hashed again."""
    table = {
        p: e for p, e in read_json_or_nothing(_table()).items() if Path(p).exists()
    }
    with suppress(ArtifactError):  # a cache folder that cannot be written
        write_atomically(_table(), json.dumps({**table, place: entry}, indent=1))


def _table() -> Path:
    return cache_home() / "digests.json"
