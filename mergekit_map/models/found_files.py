"""Files of a model as they are found: what is none, and what holds no JSON object."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from mergekit_map.config.wrong_values import in_words
from mergekit_map.errors import MergeError
from mergekit_map.files import read_whole
from mergekit_map.models.settings import Settings

_LARGEST = 1 << 28  # bytes of a file of JSON; the largest tokenizers have 1 << 25


def is_there(path: Path) -> bool:
    """Tell whether there is a file.

    Raises:
        MergeError: there is something else, which whoever loads the model would read.
    """
    if path.is_file():
        return True
    if os.path.lexists(path):
        raise MergeError(
            f"{path} is no file, but a folder, a pipe, a device or a link to nothing; "
            "remove it, or download the model again"
        )
    return False


def read_json_file(path: Path) -> Settings:
    """Read a file that holds one JSON object.

    Raises:
        MergeError: it does not.
    """
    try:
        content = json.loads(read_whole(path, _LARGEST).decode("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise MergeError(f"{path} is not JSON: {error}; download it again") from None
    if not isinstance(content, dict):
        raise MergeError(f"{path} holds no JSON object; download it again")
    return content


def damaged(path: Path, error: ValidationError) -> MergeError:
    """Say what is wrong first in a file of JSON that is not as it must be."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "[key]")
    return MergeError(
        f"{path} is damaged at {place!r}: {in_words(first)}; download it again"
    )


def refuse_endless(folder: Path) -> None:
    """Refuse pipes and devices, which nobody comes to the end of."""
    for path in folder.iterdir():
        with suppress(OSError):  # a link to nothing
            if stat.S_IFMT(path.stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                raise MergeError(
                    f"{path} is no file, but a pipe or a device; remove it, or "
                    "download the model again"
                )
