"""What is written and not whole yet, and what of it a killed process left behind.

Such files and folders have names of a form of their own, and are locked by who writes
them. However a process ends, the system lets go of its locks: what nobody has locked is
nobody's, and goes when somebody looks.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where nothing is told to be left behind
    fcntl = None  # type: ignore[assignment]

_PARTIAL = re.compile(r"\..+\.[a-z0-9_]{8}\.partial")
_SCRATCH = re.compile(r"mergekit-map-scratch-[a-z0-9_]{8}")
_LONGEST = 48  # characters of a name that the name of its partial file begins with


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """Yield an empty file beside a path, and remove it unless it was renamed.

    Nobody can have put a link in its place.
    """
    prefix = f".{path.name[:_LONGEST]}."
    while True:
        handle, name = tempfile.mkstemp(".partial", prefix, path.parent)
        os.close(handle)
        held = _hold(Path(name))
        if held is not None:
            break
    try:
        yield Path(name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
        os.close(held)


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside a path, and remove it unless it was renamed."""
    prefix = f".{path.name[:_LONGEST]}."
    with _folder(path.parent, prefix, ".partial") as folder:
        yield folder


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder for what is needed for a while, and remove it in the end."""
    with _folder(None, "mergekit-map-scratch-", "") as folder:
        yield folder


def remove_leftovers(folder: Path) -> None:
    """Remove the partial files and folders in a folder that nobody writes any more."""
    _remove_free(folder, _PARTIAL)


def remove_scratch() -> None:
    """Remove the scratch folders of this user that nobody uses any more."""
    with suppress(OSError):  # there is no folder for temporary files
        _remove_free(Path(tempfile.gettempdir()), _SCRATCH)


def remove_if_left(path: Path) -> bool:
    """Remove something if it has the name of a partial file and nobody writes it."""
    if fcntl is None or not _PARTIAL.fullmatch(path.name):
        return False
    return _remove_if_free(path)


def is_scratch(path: Path) -> bool:
    """Tell whether something lies in a scratch folder, which nobody is told of."""
    return any(_SCRATCH.fullmatch(part) for part in path.parts)


@contextmanager
def _folder(parent: Path | None, prefix: str, suffix: str) -> Iterator[Path]:
    while True:
        folder = Path(tempfile.mkdtemp(suffix, prefix, parent))
        held = _hold(folder)
        if held is not None:
            break
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _remove_free(folder: Path, form: re.Pattern[str]) -> None:
    if fcntl is None:
        return
    with suppress(OSError):
        for name in os.listdir(folder):
            if form.fullmatch(name):
                _remove_if_free(folder / name)


def _hold(path: Path) -> int | None:
    """Lock what was just made, for as long as the handle is open.

    None where somebody took it for a leftover before it was locked.
    """
    if fcntl is None:  # Windows renames nothing that is open
        return os.open(os.devnull, os.O_RDONLY)
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    # A file system without locks tells nobody that something is free, either.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_SH)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    os.close(handle)
    return None


def _remove_if_free(path: Path) -> bool:
    """Remove what nobody has locked; what is not ours stays."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(path, flags)
    except OSError:
        return False
    try:
        if os.fstat(handle).st_uid != os.getuid():
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
