"""Files and folders that appear whole or not at all, and names for content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mergekit_map.errors import ArtifactError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, beside its place and rename it.

    Raises:
        ArtifactError: the folder cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode("utf-8")
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritable(path, error) from None


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
        raise _unwritable(target, error) from None
    partial = Path(place)
    try:
        yield partial
        partial.chmod(0o755)  # mkdtemp makes folders that nobody else can read
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sha256(data: bytes | str) -> str:
    """Hash bytes, or text as UTF-8, to 64 hexadecimal digits."""
    encoded = data.encode() if isinstance(data, str) else data
    return hashlib.sha256(encoded).hexdigest()


def digest(content: Any) -> str:
    """Shorten any content that JSON can write to 16 digits."""
    return sha256(json.dumps(content, sort_keys=True, default=str))[:16]


def _unwritable(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(
        f"{path} cannot be written: {error}; name a folder you may write to"
    )
