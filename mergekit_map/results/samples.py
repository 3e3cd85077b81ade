"""Records per item: ``samples/MERGE/TASK/COEFFICIENTS.json``.

Items are documents, blocks or questions. Two merges are compared by the items that one
won and the other lost; results are counts and the numbers of items, never their text.
The scores of single documents lie beside the records. A resumed search estimates the
value on all documents from them, and held-out measurements are paired by them.

A record also has the measurement itself. A log has its lines in the order of a search
with one process: what workers finish sooner, and what a kill kept out of the log, is
taken from its record when that order reaches it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeGuard

from pydantic import AfterValidator, Field, ValidationError

from mergekit_map.results.front import Reading
from mergekit_map.results.log import Key, evaluation_key
from mergekit_map.results.records import (
    LARGEST,
    MOST_BYTES,
    Coefficients,
    Finite,
    Frozen,
    Line,
    Stderr,
)
from mergekit_map.types import Answers, Measurement, MeasurementRequest, Metric
from mergekit_map.utils.files import digest, json_line, read_whole, write_atomically

_ROUNDING = 1e-9  # between sums of the same numbers
_NAMED = 3  # items won, and items lost


def _possible(answers: Answers) -> Answers:
    """Raise ValueError for scores that nobody measured."""
    rising = all(a < b for a, b in pairwise((-1, *answers.ids)))
    paired = len(answers.ids) == len(answers.values) == len(answers.weights)
    # Such that no square of a sum overflows.
    sized = all(abs(value) <= LARGEST for value in answers.values)
    weighted = all(1 / LARGEST <= weight <= LARGEST for weight in answers.weights)
    if not (rising and paired and sized and weighted):
        raise ValueError("ids rise, and each has a value and a positive weight")
    return answers


_Answers: TypeAlias = Annotated[Answers, AfterValidator(_possible)]
# Numbers of items won, lost and tied, and the largest differences by item.
ItemComparison: TypeAlias = tuple[int, int, int, list[tuple[str, float]]]


class _Measured(Frozen):
    """A measurement without its scores."""

    value: Finite | None
    stderr: Stderr | None
    n: int = Field(ge=0)
    details: Mapping[str, int | Finite]
    seconds: Stderr


class SampleFile(Frozen):
    """The measurement of a task on a merge, with its records."""

    coefficients: Coefficients | None = None
    definition: Line | None = None  # fingerprint of the task
    documents: tuple[int, ...] | None = None  # the requested ones; None for all
    measured: _Measured | None = None  # not kept by earlier versions
    samples: tuple[dict[str, Any], ...] = ()
    answers: _Answers | None = None

    def measurement(self) -> Measurement | None:
        """Return the measurement; None where there is none of the documents."""
        measured, answers = self.measured, self.answers
        if measured is None or measured.value is None:
            return None
        ids = None if answers is None else answers.ids
        if self.documents is not None and ids != self.documents:
            return None
        return Measurement(**vars(measured), answers=answers)


def read_samples(folder: Path, coefficients: Mapping[str, float]) -> SampleFile:
    """Read the file of a task on a merge; an empty one if missing or damaged."""
    try:
        content = read_whole(_path(folder, coefficients), MOST_BYTES)
        return SampleFile.model_validate_json(content)
    except (OSError, ValidationError):
        return SampleFile()  # whoever wants them can do without


def copy_samples(
    folder: Path,
    coefficients: Mapping[str, float],
    target: Path,
    names: Mapping[str, float],
) -> None:
    """Copy the records of a merge to the coefficients it has elsewhere."""
    record = read_samples(folder, coefficients)
    if record.coefficients is not None:
        renamed = record.model_copy(update={"coefficients": dict(names)})
        content = renamed.model_dump_json(exclude_unset=True)
        write_atomically(_path(target, names), content + "\n")


def _path(folder: Path, coefficients: Mapping[str, float]) -> Path:
    return folder / f"{digest(coefficients)}.json"


class SampleStore:
    """The stored measurements of the merges of one search; cached in memory."""

    def __init__(self, folder: Path, definitions: Mapping[str, str]):
        self._folder = folder
        self._definitions = definitions  # fingerprint of each task
        self._cache: dict[Key, SampleFile] = {}

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Read scores; None without any, or with another definition of the task."""
        return self._read(coefficients, task).answers

    def find(self, request: MeasurementRequest) -> Measurement | None:
        """Read a finite value on the same documents, by the same definition."""
        record = self._read(request.coefficients, request.task)
        same = record.documents == request.documents
        return record.measurement() if same else None

    def write(self, request: MeasurementRequest, measured: Measurement) -> None:
        """Write a measurement with its records, in place of an earlier one."""
        coefficients, task = request.coefficients, request.task
        details = {k: v for k, v in measured.details.items() if math.isfinite(v)}
        numbers = {name: getattr(measured, name) for name in ("value", "stderr", "n")}
        seconds = measured.seconds or 0.0
        content: dict[str, Any] = {
            "coefficients": coefficients,
            "definition": self._definitions.get(task, ""),
            "documents": request.documents,
            "measured": {**numbers, "details": details, "seconds": seconds},
            "samples": measured.samples,
        }
        if measured.answers is not None:
            content["answers"] = vars(measured.answers)
        path = _path(self._folder / task, coefficients)
        # Halves of characters, which a model may write, are in no file.
        text = json.dumps(json.loads(json_line(content)), ensure_ascii=False)
        write_atomically(path, text.encode(errors="replace") + b"\n")
        # The next one reads what a search that goes on would read.
        self._cache.pop(evaluation_key(coefficients, task), None)

    def _read(self, coefficients: Mapping[str, float], task: str) -> SampleFile:
        key = evaluation_key(coefficients, task)
        if key not in self._cache:
            record = read_samples(self._folder / task, coefficients)
            if record.definition != self._definitions.get(task, ""):
                record = SampleFile()
            self._cache[key] = record.model_copy(update={"samples": ()})
        return self._cache[key]


def mean_of(answers: Answers) -> float:
    """Return the mean of scores, or its exponential, as the metric defines it."""
    total = math.fsum(answers.weights)
    products = zip(answers.weights, answers.values, strict=True)
    mean = math.fsum(w * v for w, v in products) / total if total else math.nan
    try:
        return math.exp(mean) if answers.exponential else mean
    except OverflowError:
        return math.inf


def are_of(answers: Answers | None, reading: Reading) -> TypeGuard[Answers]:
    """Whether scores are those of a measurement.

    Others are of another definition of the task, or of another machine. Sums in another
    order differ by rounding.
    """
    if answers is None or reading.value is None:
        return False
    rounding = _ROUNDING * (reading.stderr or 0.0)
    return math.isclose(
        mean_of(answers), reading.value, rel_tol=_ROUNDING, abs_tol=rounding
    )


def won_items(
    ours: Answers | None, theirs: Answers | None, metric: Metric
) -> ItemComparison | None:
    """Count the items that one merge won, lost and tied; None where they share none.

    Last come those that differ most, with their differences; larger is better.
    """
    if ours is None or theirs is None:
        return None
    values, others = (dict(zip(a.ids, a.values, strict=True)) for a in (ours, theirs))
    gain = {i: metric.sign * (values[i] - others[i]) for i in values if i in others}
    won = sorted((i for i in gain if gain[i] > _ROUNDING), key=lambda i: -gain[i])
    lost = sorted((i for i in gain if gain[i] < -_ROUNDING), key=lambda i: gain[i])
    n_tied = len(gain) - len(won) - len(lost)
    named = [*won[:_NAMED], *lost[:_NAMED]]
    largest = [(str(i), float(f"{gain[i]:.3g}")) for i in named]
    return (len(won), len(lost), n_tied, largest) if gain else None
