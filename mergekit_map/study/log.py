"""The evaluation log: one line per measurement, synced before the next one starts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from mergekit_map.errors import ArtifactError

VERSION = 1
LOCK_NAME = ".mergekit-map.lock"  # also tells a run folder from others

Role = Literal[
    "anchor",
    "design",
    "imported",  # measured elsewhere; the user vouches that it is of this merge
    "refinement",
    "front",
    "opponent",
    "baseline",
]
# Measured to judge a search by, so that no search fits them unless it asks for them.
ASSESSING: frozenset[Role] = frozenset({"front", "opponent", "baseline"})
Key = tuple[tuple[tuple[str, float], ...], str]  # coefficients by name, task


@dataclass(frozen=True)
class Evaluation:
    """What one task said of one merge."""

    coefficients: Mapping[str, float]
    task: str
    role: Role  # why it was measured
    value: float  # NaN where the measurement failed
    stderr: float | None
    n: int
    seconds: float
    merge: str  # fingerprint of the merge: models, method, dtype, seed
    definition: str  # fingerprint of the task
    details: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    gradient: Mapping[str, float] | None = None  # derivative by each coefficient

    @property
    def key(self) -> Key:
        """Tell which measurement this is: exact coefficients and task."""
        return evaluation_key(self.coefficients, self.task)

    @property
    def failed(self) -> bool:
        """Tell whether there is no usable value."""
        return not math.isfinite(self.value)


def evaluation_key(coefficients: Mapping[str, float], task: str) -> Key:
    """Identify a measurement by its exact coefficients, in any order, and its task."""
    return tuple(sorted(coefficients.items())), task


class EvaluationLog:
    """The measurements of a run folder, on disk and in memory."""

    def __init__(self, path: Path, evaluations: list[Evaluation]):
        self.path = path
        self._evaluations = evaluations

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self._evaluations)

    def append(self, evaluation: Evaluation) -> None:
        """Add a measurement; it is on the disk when this returns."""
        with self.path.open("ab") as file:
            file.write((_encode(evaluation) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        self._evaluations.append(evaluation)


@contextmanager
def open_log(path: Path) -> Iterator[EvaluationLog]:
    """Open a log for one search at a time; a line cut short by a kill is dropped.

    Raises:
        ArtifactError: another search has it open, or a line cannot be read.
    """
    lock = FileLock(path.with_name(LOCK_NAME))
    try:
        with lock.acquire(timeout=0):
            _drop_torn_line(path)
            yield EvaluationLog(path, list(read_log(path)))
    except Timeout:
        raise ArtifactError(
            f"another search is writing {path}; wait for it, or name another run folder"
        ) from None


def read_log(path: Path) -> Iterator[Evaluation]:
    """Read the finished lines of a log; none where there is no log yet.

    Raises:
        ArtifactError: a line is not of the form that this version writes.
    """
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield _decode(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                f"{path}:{number}: not an evaluation ({type(error).__name__} {error}); "
                "restore the file, or remove this line"
            ) from None


def _drop_torn_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


def _encode(evaluation: Evaluation) -> str:
    record: dict[str, Any] = {
        "version": VERSION,
        "coefficients": dict(evaluation.coefficients),
        "task": evaluation.task,
        "role": evaluation.role,
        "value": None if evaluation.failed else evaluation.value,
        "stderr": evaluation.stderr,
        "n": evaluation.n,
        "seconds": round(evaluation.seconds, 4),
        "details": dict(evaluation.details),
        "merge": evaluation.merge,
        "definition": evaluation.definition,
    }
    if evaluation.error is not None:
        record["error"] = evaluation.error
    if evaluation.gradient is not None:
        record["gradient"] = {
            name: value if math.isfinite(value) else None
            for name, value in evaluation.gradient.items()
        }
    return json.dumps(record, allow_nan=False)


def _decode(record: dict[str, Any]) -> Evaluation:
    if record["version"] != VERSION:
        raise ValueError(f"version {record['version']}, this is version {VERSION}")
    gradient = record.get("gradient")
    return Evaluation(
        coefficients={k: float(v) for k, v in record["coefficients"].items()},
        task=record["task"],
        role=record["role"],
        value=math.nan if record["value"] is None else float(record["value"]),
        stderr=record["stderr"],
        n=record["n"],
        seconds=record["seconds"],
        merge=record["merge"],
        definition=record["definition"],
        details=record["details"],
        error=record.get("error"),
        gradient=None
        if gradient is None
        else {k: math.nan if v is None else float(v) for k, v in gradient.items()},
    )
