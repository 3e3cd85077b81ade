"""What was measured item by item: ``samples/MERGE/TASK/COEFFICIENTS.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mergekit_map.files import digest, json_line, write_atomically
from mergekit_map.measurement import Measurement


def write_samples(
    folder: Path,
    coefficients: Mapping[str, float],
    measurement: Measurement,
    definition: str = "",
) -> None:
    """Keep the records and answers of a task on a merge, if any, in place of earlier.

    The ``definition`` is the fingerprint of the task.
    """
    if measurement.samples or measurement.answers is not None:
        content: dict[str, Any] = {
            "coefficients": coefficients,
            "samples": list(measurement.samples),
        }
        if (answers := measurement.answers) is not None:
            content["definition"] = definition
            content["answers"] = vars(answers)
        write_atomically(_path(folder, coefficients), json_line(content) + "\n")


def read_samples(folder: Path, coefficients: Mapping[str, float]) -> list[Any]:
    """Read the records of a task on a merge; none where there are none to read."""
    found = read_sample_file(folder, coefficients).get("samples")
    return found if isinstance(found, list) else []


def read_sample_file(folder: Path, coefficients: Mapping[str, float]) -> dict[str, Any]:
    """Read the file of a task on a merge; empty where there is none to read."""
    try:
        content = json.loads(_path(folder, coefficients).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # whoever wants them can do without
    return content if isinstance(content, dict) else {}


def copy_samples(
    folder: Path,
    coefficients: Mapping[str, float],
    target: Path,
    names: Mapping[str, float],
) -> None:
    """Keep what is there of a merge under the coefficients it has elsewhere, too."""
    if content := read_sample_file(folder, coefficients):
        text = json.dumps({**content, "coefficients": names}) + "\n"
        write_atomically(_path(target, names), text)


def _path(folder: Path, coefficients: Mapping[str, float]) -> Path:
    return folder / f"{digest(coefficients)}.json"
