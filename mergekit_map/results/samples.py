"""What was measured item by item: ``samples/MERGE/TASK/COEFFICIENTS.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mergekit_map.files import digest, plain, write_atomically


def write_samples(
    folder: Path, coefficients: Mapping[str, float], samples: Sequence[Any]
) -> None:
    """Keep the records of a task on a merge, if there are any, in place of earlier."""
    if samples:
        content = {"coefficients": coefficients, "samples": list(samples)}
        text = json.dumps(plain(content)) + "\n"
        write_atomically(_path(folder, coefficients), text)


def read_samples(folder: Path, coefficients: Mapping[str, float]) -> list[Any]:
    """Read the records of a task on a merge; none where there are none to read."""
    try:
        content = json.loads(_path(folder, coefficients).read_bytes())
    except (OSError, ValueError, RecursionError):
        return []  # whoever wants them can do without
    found = content.get("samples") if isinstance(content, dict) else None
    return found if isinstance(found, list) else []


def _path(folder: Path, coefficients: Mapping[str, float]) -> Path:
    return folder / f"{digest(coefficients)}.json"
