"""The cache folder: recorded merges, merged adapters, trained models.

The size of recorded merges is limited: the least recently used are removed when a new
one needs their space, but never one that a living process uses.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from mergekit_map.utils.files import (
    cache_home,
    partial_folder,
    read_json_or_nothing,
    write_json,
)
from mergekit_map.utils.text import bytes_in_words, listed

CONTENTS = "contents.json"  # of a recorded merge, written last

# Of what is free and what recorded merges take, unless a limit is set.
_SHARE = 0.5
_SPARE = 1 << 28  # bytes that are left free


@dataclass(frozen=True)
class CacheEntry:
    """A folder of the cache."""

    key: str  # its name
    kind: str  # merge, adapters, demo
    what: str
    folder: Path
    n_bytes: int
    used: float  # last, in seconds since 1970
    in_use: bool = False  # now, by a process


def recordings_folder() -> Path:
    """Return the folder of recorded merges."""
    return cache_home() / "merges"


def kept() -> list[CacheEntry]:
    """List the folders of the cache, the most recently used first."""
    found = [*_merges()]
    for folder in _folders(cache_home() / "adapters"):
        models = [path.name for path in _folders(folder)]
        found.append(_kept(folder, "adapters", f"merged: {listed(models or ['none'])}"))
    for folder in cache_home().glob("demo-family-*"):
        found.append(_kept(folder, "demo", "the models of the demo"))
    return sorted(found, key=lambda one: one.used, reverse=True)


def remove(one: CacheEntry) -> bool:
    """Remove a folder, unless a process uses it; return whether it is gone."""
    if one.kind != "merge":
        # At once: nobody is to find a part of it.
        with partial_folder(one.folder) as gone:
            one.folder.rename(gone / one.key)
        return True
    try:
        with FileLock(lock_of(one.folder), timeout=0):
            if _is_in_use(one.folder):
                return False
            # Under a name that tells nobody that it is whole.
            gone = one.folder.with_name(f".{one.key}.removed.partial")
            one.folder.rename(gone)
            shutil.rmtree(gone)
    except Timeout:
        return False
    return True


def limit() -> int:
    """Return the bytes that recorded merges may take."""
    given = read_json_or_nothing(_settings()).get("limit")
    if isinstance(given, int):
        return given
    taken = sum(one.n_bytes for one in _merges())
    return int(_SHARE * (_free() + taken))


def set_limit(n_bytes: int | None) -> None:
    """Limit the bytes that recorded merges may take; None: by the free space."""
    write_json(_settings(), {} if n_bytes is None else {"limit": n_bytes})


def make_room(n_bytes: int = 0) -> str:
    """Remove recorded merges until so many bytes fit; return why if they cannot.

    Nothing is removed unless the bytes then fit.
    """
    _remove_leftovers()
    reason, chosen = _select_removals(n_bytes)
    for one in () if reason else chosen:
        remove(one)
    return reason


def lacking_room(n_bytes: int) -> str:
    """Return why a recording of so many bytes does not fit; empty if it does."""
    return _select_removals(n_bytes)[0]


def _select_removals(n_bytes: int) -> tuple[str, list[CacheEntry]]:
    """Return recordings to remove for so many bytes, and why these cannot fit."""
    merges = sorted(_merges(), key=lambda one: one.used)
    taken, most, free = sum(one.n_bytes for one in merges), limit(), _free()
    excess = max(taken + n_bytes - most, n_bytes + _SPARE - free if n_bytes else 0)
    chosen = []
    for one in merges:
        if excess <= 0:
            break
        if not one.in_use:
            chosen.append(one)
            excess -= one.n_bytes
    if excess <= 0 or not n_bytes:
        return "", chosen
    reason = (
        f"{bytes_in_words(n_bytes)} are wanted in {recordings_folder()}, where "
        f"{bytes_in_words(free)} are free and recorded merges may take "
        f"{bytes_in_words(most)}"
    )
    return reason, []


def mark_in_use(folder: Path) -> Callable[[], None]:
    """Protect a recorded merge from removal until the context or the process ends."""
    try:
        import fcntl

        handle = os.open(folder / CONTENTS, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_SH)
    except (ImportError, OSError):  # Windows removes no file that is mapped
        return lambda: None
    return partial(os.close, handle)


def lock_of(folder: Path) -> Path:
    """Return the lock file of a recorded merge, for writing and removing it."""
    return folder.with_name(f".{folder.name}.lock")


def _is_in_use(folder: Path) -> bool:
    try:
        import fcntl

        handle = os.open(folder / CONTENTS, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _merges() -> Iterator[CacheEntry]:
    for folder in _folders(recordings_folder()):
        contents = read_json_or_nothing(folder / CONTENTS)
        models = [Path(str(model)).name for model in contents.get("models", [])]
        what = f"{contents.get('method')} of {listed(models)}" if models else "damaged"
        yield _kept(folder, "merge", what, in_use=_is_in_use(folder))


def _kept(folder: Path, kind: str, what: str, *, in_use: bool = False) -> CacheEntry:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    used = folder.stat().st_mtime
    return CacheEntry(folder.name, kind, what, folder, sum(sizes), used, in_use)


def _folders(folder: Path) -> list[Path]:
    inside = folder.iterdir() if folder.is_dir() else ()
    return [path for path in inside if path.is_dir() and path.name[0] != "."]


def _remove_leftovers() -> None:
    """Remove the partial recordings of processes that were killed."""
    for path in recordings_folder().glob(".*.partial"):
        key = path.name.split(".")[1]
        with suppress(Timeout), FileLock(recordings_folder() / f".{key}.lock", 0):
            shutil.rmtree(path, ignore_errors=True)


def _settings() -> Path:
    return cache_home() / "cache.json"


def _free() -> int:
    folder = recordings_folder().absolute()
    there = next(path for path in [folder, *folder.parents] if path.exists())
    return shutil.disk_usage(there).free
