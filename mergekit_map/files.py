"""Files and folders that appear whole or not at all; JSON; names for content."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from mergekit_map.errors import ArtifactError

StrPath: TypeAlias = str | os.PathLike[str]  # what people name a file by
_BLOCK = 1 << 22  # bytes read at a time


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, beside its place and rename it.

    Raises:
        ArtifactError: the folder cannot be written.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Under a name that nobody can have put a link in the place of.
        handle, partial = tempfile.mkstemp(".partial", f".{path.name}.", path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(partial, 0o666 & ~_umask())  # mkstemp's are their owner's alone
            os.replace(partial, path)
        except BaseException:
            os.unlink(partial)
            raise
    except OSError as error:
        raise unwritable(path, error) from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with exact numbers; NaN and infinity become null."""
    write_atomically(path, json.dumps(plain(content), indent=1, allow_nan=False) + "\n")


def read_whole(path: Path, most: int, start: int = 0) -> bytes:
    """Read a file of at most so many bytes; nothing that is endless, or waits.

    With ``start``, what comes after so many bytes.

    Raises:
        OSError: it is larger, or no file but a folder, a pipe, a device.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOCTTY", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is a folder, a pipe or a device, and no file")
        file.seek(start)
        content = file.read(most + 1) if status.st_size <= most else None
    if content is None or len(content) > most:
        raise OSError(f"it has {status.st_size} bytes, more than the {most} it may")
    return content


def read_json_or_nothing(path: Path) -> Mapping[str, Any]:
    """Read the JSON object of a file; an empty one where there is none to be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def plain(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def refuse_existing(target: Path) -> None:
    """Raise ArtifactError if there is something where output should go."""
    if target.exists():
        raise ArtifactError(
            f"{target} exists already and is left as it is; name another folder, or "
            "remove this one"
        )


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a sibling folder that takes the name of ``target`` when all went well.

    Raises:
        ArtifactError: ``target`` exists, or cannot be created.
    """
    refuse_existing(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.mkdtemp(
            prefix=f".{target.name}.", suffix=".partial", dir=target.parent
        )
    except OSError as error:
        raise unwritable(target, error) from None
    partial = Path(place)
    try:
        yield partial
        partial.chmod(0o755)  # mkdtemp makes folders that nobody else can read
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sha256(data: bytes | str) -> str:
    """Hash bytes, or text as UTF-8, to 64 hexadecimal digits."""
    encoded = data.encode() if isinstance(data, str) else data
    return hashlib.sha256(encoded).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Hash a file, however large, to 64 hexadecimal digits."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def digest(content: Any) -> str:
    """Shorten any content that JSON can write to 16 digits."""
    return sha256(json.dumps(content, sort_keys=True, default=str))[:16]


def unwritable(path: Path, error: OSError) -> ArtifactError:
    """Say that something cannot be written, and what to do."""
    return ArtifactError(
        f"{path} cannot be written: {error}; name a folder you may write to"
    )


def cache_home() -> Path:
    """Give ``$MERGEKIT_MAP_HOME``, or the user's cache folder for this program."""
    own = os.environ.get("MERGEKIT_MAP_HOME")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "mergekit-map"
