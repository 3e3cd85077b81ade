"""Atomic writes of files and folders, JSON, and digests of content."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from mergekit_map.errors import ArtifactError
from mergekit_map.utils.shutdown import at_end

StrPath: TypeAlias = str | os.PathLike[str]  # what people name a file by
LARGEST_JSON = 1 << 28  # bytes of a file; the largest tokenizers have 1 << 25
_LONGEST = 48  # letters of a name that the name of its partial file begins with
temporary: set[Path] = set()  # files and folders to remove before the process ends


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, under another name, and rename it.

    Raises ArtifactError if the folder cannot be written, or the path is no file.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    try:
        if path.exists() and not path.is_file():
            raise ArtifactError(
                f"{path} is a folder, a pipe or a device, and is left as it is; name a "
                "file"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_path(path) as partial:
            with partial.open("xb") as file:  # nobody can replace it by a link
                file.write(data)
            partial.replace(path)
    except OSError as error:
        raise unwritable(path, error) from None


def append_durably(path: Path, data: bytes) -> None:
    """Append to a file and flush it to the disk, or raise ArtifactError."""
    try:
        with path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from None


def written_state(path: StrPath) -> tuple[int, ...]:
    """Return the file system's record of a file's last change; () without a file."""
    try:
        s = os.stat(path)
    except OSError:
        return ()
    return s.st_size, s.st_dev, s.st_ino, s.st_mtime_ns, s.st_ctime_ns


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with exact numbers; NaN and infinity become null."""
    write_atomically(path, json.dumps(plain(content), indent=1, allow_nan=False) + "\n")


def read_whole(path: Path, most: int) -> bytes:
    """Read a file of at most ``most`` bytes; never block or read without end.

    Raises OSError if it is larger, or no file but a folder, a pipe, a device.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is a folder, a pipe or a device, and no file")
        content = file.read(most + 1) if status.st_size <= most else None
    if content is None or len(content) > most:
        raise OSError(f"it has {status.st_size} bytes, more than the {most} it may")
    return content


def read_json_or_nothing(path: Path) -> Mapping[str, Any]:
    """Read the JSON object of a file; an empty one if that fails."""
    try:
        content = json.loads(read_whole(path, LARGEST_JSON))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def plain(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def refuse_existing(target: Path) -> None:
    """Raise ArtifactError if an output path exists."""
    if os.path.lexists(target):
        text = f"{target} exists already and is left as it is; name another one"
        raise ArtifactError(f"{text}, or remove it")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder for temporary files, and remove it at the end."""
    name = f"mergekit-map-{secrets.token_hex(4)}"
    with _removed_after(Path(tempfile.gettempdir(), name)) as folder:
        folder.mkdir(0o700)
        yield folder


@contextmanager
def partial_path(path: Path) -> Iterator[Path]:
    """Yield a new name beside a path; what has it in the end is removed."""
    name = f".{path.name[:_LONGEST]}.{secrets.token_hex(4)}.partial"
    with _removed_after(path.parent / name) as partial:
        yield partial


@contextmanager
def _removed_after(path: Path) -> Iterator[Path]:
    temporary.add(path)  # before it is made, as a signal may end the process between
    try:
        yield path
    finally:
        _remove(path)
        temporary.discard(path)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):  # a network's folder keeps files that are open
        path.unlink()


at_end.append(lambda: [*map(_remove, [*temporary])])


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a sibling folder that is renamed to ``target`` on success.

    Raises ArtifactError if ``target`` exists, or cannot be created.
    """
    refuse_existing(target)
    with partial_path(target) as partial:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
        except OSError as error:
            raise unwritable(target, error) from None
        yield partial
        partial.rename(target)


def sha256(data: bytes | str) -> str:
    """Hash bytes, or text as UTF-8, to 64 hexadecimal digits."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Hash a file, however large, to 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(content: Any) -> str:
    """Return 16 hexadecimal digits for any content that JSON can represent."""
    return sha256(json.dumps(content, sort_keys=True, default=str))[:16]


def unwritable(path: Path, error: OSError) -> ArtifactError:
    """Return the error for a file or folder that cannot be written."""
    return ArtifactError(
        f"{path} cannot be written: {error}; free space or write elsewhere, then run "
        "the same command again: what is measured is kept"
    )


def cache_home() -> Path:
    """Return ``$MERGEKIT_MAP_HOME``, or the user's cache folder for this program."""
    if own := os.environ.get("MERGEKIT_MAP_HOME"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "mergekit-map"
    except RuntimeError:  # a user without an entry, as in containers
        raise ArtifactError(
            "there is no home folder to keep recorded merges in; set MERGEKIT_MAP_HOME "
            "to a folder, or HOME"
        ) from None
