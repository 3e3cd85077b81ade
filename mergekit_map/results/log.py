"""The evaluation log: one line a measurement, synced before the next one starts.

A kill can cut the last line short; readers and writers drop it. One search at a time
has a log open.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from filelock import FileLock, Timeout
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
)

from mergekit_map.errors import ArtifactError
from mergekit_map.results.front import Reading
from mergekit_map.results.records import (
    LARGEST,
    Finite,
    Line,
    Record,
    Stderr,
    in_one_sentence,
    left_out,
    unreadable,
)
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.types import Measurement
from mergekit_map.utils.files import append_durably, plain, read_whole, unwritable

_MOST_BYTES = 1 << 30  # of a log: hundreds of thousands of lines


def whole_lines(path: Path) -> list[bytes]:
    """Return the complete lines; none where there is no log yet."""
    try:
        return read_whole(path, _MOST_BYTES).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(path, error) from None


Role = Literal[
    "anchor",
    "design",
    "imported",  # measured elsewhere; the user vouches that it is of this merge
    "refinement",
    "front",
    "opponent",
    "baseline",
    "checkpoint",  # measured again, of what was written to disk
    "holdout",  # on documents that the search never sees
]
# Measured to judge a search by, so that no search fits them unless it asks for them.
ASSESSING = frozenset[Role]({"front", "opponent", "baseline", "checkpoint", "holdout"})
# What these measured is no part of a search.
RIVALS = frozenset[Role]({"opponent", "baseline"})
MergeKey: TypeAlias = tuple[tuple[str, float], ...]  # coefficients by name
Key: TypeAlias = tuple[MergeKey, str]  # with the task


def _measured_value(value: Any, info: ValidationInfo) -> Any:
    if value is None or (info.mode == "python" and not math.isfinite(value)):
        return math.nan  # nothing could be measured, which is null in a log
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ValueError(f"a number of at most {LARGEST:g}, or null, is wanted")
    return value


Count: TypeAlias = Annotated[int, Field(ge=0, le=1 << 62)]
_Value: TypeAlias = Annotated[
    float,
    Field(allow_inf_nan=True),
    BeforeValidator(_measured_value),
    PlainSerializer(plain),
]


class Evaluation(Record):
    """The measurement of one merge on one task: a line of ``evaluations.jsonl``."""

    coefficients: Mapping[Line, Finite]
    """Exact coefficients of the merge."""
    task: Line
    """The measured task."""
    role: Role
    """The purpose of the measurement; `checkpoint`: measured again, of what `merge`
    wrote."""
    value: _Value
    """The value in the task's own units; null where the measurement failed."""
    stderr: Stderr | None
    """Standard error of the value, null where unknown. Documents are taken as draws of
    a larger population. It includes `sampling`."""
    n: Count
    """Number of measured documents, blocks or items."""
    seconds: Annotated[Stderr, AfterValidator(lambda seconds: round(seconds, 4))]
    """Duration of the measurement."""
    details: Mapping[str, int | Finite] = Field(default_factory=dict)
    """Other values of the task."""
    merge: Line
    """Fingerprint of models, method, dtype and seed; of `linear` references another."""
    recipe: Line | None = left_out()
    """Fingerprint of this merge's recipe, in any search; left out where unknown."""
    definition: Line
    """Fingerprint of the task."""
    error: str | None = left_out()
    """Message of a failed measurement; left out otherwise."""
    foretold: Reading | None = left_out()
    """Prediction made before it was measured; left out where there was none."""
    sampling: Stderr | None = left_out()
    """Where only `n` of the documents were measured: standard error of the value as an
    estimate of the value on all of them; left out where all were."""
    taken: Line | None = left_out()
    """The `merge` at the time of the measurement; left out where it is the same,
    or where the merge only judged a search, as an opponent of `compare` does."""
    engine: Line | None = left_out()
    """Engine that generated the answers: `vllm`; left out for transformers' `generate`
    and for tasks without generated answers."""

    @classmethod
    def of(cls, measured: Measurement, **about: Any) -> Evaluation:
        """Build from a measurement and the other keys; its purpose is the design's."""
        return cls(
            role="design",
            value=measured.value,
            stderr=plain(measured.stderr),
            n=measured.n,
            seconds=measured.seconds or 0.0,
            details={k: v for k, v in measured.details.items() if abs(v) <= LARGEST},
            sampling=plain(measured.sampling),
            **about,
        )

    @property
    def key(self) -> Key:
        """Return the key of this measurement: exact coefficients and task."""
        return merge_key(self.coefficients), self.task

    @property
    def reading(self) -> Reading:
        """Return the value and its standard error."""
        return Reading.of(self.value, self.stderr, None if self.whole else self.n)

    @property
    def whole(self) -> bool:
        """Whether all documents were measured."""
        return self.sampling is None

    @property
    def failed(self) -> bool:
        """Whether there is no usable value."""
        return not math.isfinite(self.value)


def merge_key(coefficients: Mapping[str, float]) -> MergeKey:
    """Return the key of a merge: its exact coefficients, in any order."""
    return tuple(sorted(coefficients.items()))


def measured_of(
    evaluations: Iterable[Evaluation],
    merge: str,
    definitions: Mapping[str, str],
    names: Iterable[str],
) -> list[Evaluation]:
    """Return the measurements of the same models and settings, tasks and coefficients.

    ``merge`` is the fingerprint of models and settings, ``definitions`` has those of
    the tasks, and ``names`` are the coefficients. Checkpoints are left out: they
    measure again what the log has.
    """
    wanted = set(names)
    return [
        e
        for e in evaluations
        if e.merge == merge
        and definitions.get(e.task) == e.definition
        and e.coefficients.keys() == wanted
        and e.role != "checkpoint"
    ]


def by_merge(measured: Iterable[Evaluation]) -> dict[MergeKey, dict[str, Evaluation]]:
    """Group measurements by merge, one of each task.

    The latest of a task counts, except that a failure never replaces a value, and a
    value of some of the documents never replaces one of all documents.
    """
    merges: dict[MergeKey, dict[str, Evaluation]] = {}
    for e in measured:
        merge, task = e.key
        tasks = merges.setdefault(merge, {})
        earlier = tasks.setdefault(task, e)
        if (not e.failed, e.whole) >= (not earlier.failed, earlier.whole):
            tasks[task] = e
    return merges


def read_log(path: Path) -> Iterator[Evaluation]:
    """Read a log's complete lines, if any; raise ArtifactError for another form."""
    seen = set[bytes]()
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            evaluation = Evaluation.model_validate_json(line)
        except ValidationError as error:
            raise ArtifactError(
                f"{path}:{number}: not an evaluation: {in_one_sentence(error)}; "
                "restore the file, or remove this line"
            ) from None
        # An exact copy of a line is no second measurement. But two failures can look
        # alike, and importing A, then B, then A again is meant to end with A.
        if line not in seen or evaluation.failed or evaluation.role == "imported":
            yield evaluation
        seen.add(line)


class EvaluationLog:
    """The measurements of a run folder; a ``listener`` gets each once it is on disk."""

    def __init__(self, folder: RunFolder, evaluations: list[Evaluation]):
        self.folder, self.path = folder, folder.log
        self.listener: Callable[[Evaluation], None] | None = None
        self._evaluations = evaluations

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self._evaluations)

    def append(self, evaluation: Evaluation) -> None:
        """Append a measurement; it is on the disk when this returns."""
        line = json.dumps(evaluation.model_dump(mode="json"))
        append_durably(self.path, f"{line}\n".encode())
        self._evaluations.append(evaluation)
        if self.listener is not None:
            self.listener(evaluation)


@contextmanager
def open_log(folder: RunFolder) -> Iterator[EvaluationLog]:
    """Open a log for one search at a time; a line that a kill cut short is dropped.

    Raises ArtifactError if another search has it open, or a line cannot be read.
    """
    path = folder.log
    busy = (
        f"another search is writing {path}; wait for it, or name another run folder; "
        f"if none is, remove {folder.lock}"
    )
    with locked(folder.lock, place=folder.lock, busy=busy):
        evaluations = list(read_log(path))  # an error leaves the file as it is
        bytes_of_lines = sum(len(line) + 1 for line in whole_lines(path))
        if path.exists() and bytes_of_lines < path.stat().st_size:
            os.truncate(path, bytes_of_lines)
        yield EvaluationLog(folder, evaluations)


@contextmanager
def locked(lock: Path, place: Path, busy: str, patience: float = 0) -> Iterator[None]:
    """Hold a lock file for one process.

    Raises ArtifactError with the message ``busy`` if another process still holds it
    after ``patience`` seconds; or if the ``place`` cannot be written.
    """
    try:
        held = FileLock(lock).acquire(timeout=patience)
    except Timeout:
        raise ArtifactError(busy) from None
    except OSError as error:
        raise unwritable(place, error) from None
    with held:
        yield
