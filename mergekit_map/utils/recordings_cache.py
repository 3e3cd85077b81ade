"""The cache folder: recorded merges, merged adapters, trained models.

What is in it stays there until somebody removes it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from mergekit_map.utils.files import cache_home, partial_path, read_json_or_nothing
from mergekit_map.utils.text import listed

CONTENTS = "contents.json"  # of a recorded merge, written last


@dataclass(frozen=True)
class CacheEntry:
    """A folder of the cache."""

    key: str  # its name
    kind: str  # merge, adapters, demo
    what: str
    folder: Path
    n_bytes: int
    used: float  # last, in seconds since 1970


def recordings_folder() -> Path:
    """Return the folder of recorded merges."""
    return cache_home() / "merges"


def kept() -> list[CacheEntry]:
    """List the folders of the cache, the most recently used first."""
    found = [_kept(one, "merge", _merge(one)) for one in _folders(recordings_folder())]
    for folder in _folders(cache_home() / "adapters"):
        models = [path.name for path in _folders(folder)]
        found.append(_kept(folder, "adapters", f"merged: {listed(models or ['none'])}"))
    for folder in cache_home().glob("demo-family-*"):
        found.append(_kept(folder, "demo", "the models of the demo"))
    return sorted(found, key=lambda one: one.used, reverse=True)


def remove(one: CacheEntry) -> None:
    """Remove a folder; a process that has mapped its files keeps them."""
    # At once: nobody is to find a part of it. A full disk has no room for a new folder.
    with partial_path(one.folder) as gone:
        one.folder.rename(gone)


def remove_leftovers() -> None:
    """Remove the partial recordings of processes that were killed."""
    for path in recordings_folder().glob(".*.partial"):
        key = path.name.split(".")[1]
        lock = FileLock(recordings_folder() / f".{key}.lock", 0)
        with suppress(Timeout, OSError), lock:  # of a running one, or another user's
            shutil.rmtree(path, ignore_errors=True)


def free_bytes() -> int:
    """Return the free bytes of the disk with the recorded merges."""
    path = recordings_folder().absolute()
    there = next(each for each in [path, *path.parents] if os.path.exists(each))
    return shutil.disk_usage(there).free


def _merge(folder: Path) -> str:
    contents = read_json_or_nothing(folder / CONTENTS)
    models = [Path(str(model)).name for model in contents.get("models", [])]
    return f"{contents.get('method')} of {listed(models)}" if models else "damaged"


def _kept(folder: Path, kind: str, what: str) -> CacheEntry:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    used = folder.stat().st_mtime
    return CacheEntry(folder.name, kind, what, folder, sum(sizes), used)


def _folders(folder: Path) -> list[Path]:
    inside = folder.iterdir() if folder.is_dir() else ()
    return [path for path in inside if path.is_dir() and path.name[0] != "."]
