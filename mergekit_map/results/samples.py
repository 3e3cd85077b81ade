"""Records per item: ``samples/MERGE/TASK/COEFFICIENTS.json``.

Items are documents, blocks or questions. Two merges are compared by the items that one
won and the other lost; results are counts and the numbers of items, never their text.
The scores of single documents lie beside the records. A resumed search estimates the
value on all documents from them, and held-out measurements are paired by them.

A record also has the measurement itself, as a line of the log. A log has its lines in
the order of a search with one process: what workers finish sooner, and what a kill kept
out of the log, is taken from its record when that order reaches it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import TypeAdapter, ValidationError

from mergekit_map.results.front import Reading
from mergekit_map.results.log import (
    EVALUATION,
    Evaluation,
    Key,
    encode,
    evaluation_key,
)
from mergekit_map.results.records import LARGEST
from mergekit_map.types import Answers, Measurement, MeasurementRequest, Metric
from mergekit_map.utils.files import digest, json_line, write_atomically


def write_samples(
    folder: Path,
    coefficients: Mapping[str, float],
    measurement: Measurement,
    definition: str = "",
    documents: tuple[int, ...] | None = None,
) -> None:
    """Keep a measurement of a task on a merge, with its records, in place of earlier.

    The ``definition`` is the fingerprint of the task, and ``documents`` the requested
    ones; None for all.
    """
    line = Evaluation.of(
        measurement,
        coefficients=coefficients,
        task=folder.name,
        merge=folder.parent.name,
        definition=definition,
    )
    content: dict[str, Any] = {
        "coefficients": coefficients,
        "definition": definition,
        "documents": documents,
        "measured": json.loads(encode(line)),
        "samples": list(measurement.samples),
    }
    if (answers := measurement.answers) is not None:
        content["answers"] = vars(answers)
    write_atomically(_path(folder, coefficients), json_line(content) + "\n")


def read_sample_file(folder: Path, coefficients: Mapping[str, float]) -> dict[str, Any]:
    """Read the file of a task on a merge; empty if missing or unreadable."""
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
    """Copy the records of a merge to the coefficients it has elsewhere."""
    if content := read_sample_file(folder, coefficients):
        text = json.dumps({**content, "coefficients": names}) + "\n"
        write_atomically(_path(target, names), text)


def _path(folder: Path, coefficients: Mapping[str, float]) -> Path:
    return folder / f"{digest(coefficients)}.json"


_SCORES = TypeAdapter(Answers)
_ROUNDING = 1e-9  # between sums of the same numbers
_NAMED = 3  # items won, and items lost


class SampleStore:
    """The stored measurements of the merges of one search; cached in memory."""

    def __init__(self, folder: Path, definitions: Mapping[str, str]):
        self._folder = folder
        self._definitions = definitions  # fingerprint of each task
        self._known: dict[Key, _Record] = {}

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Read scores; None without any, or with another definition of the task."""
        return self._read(coefficients, task).answers

    def find(self, request: MeasurementRequest) -> Measurement | None:
        """Read a finite value on the same documents, by the same definition."""
        record = self._read(request.coefficients, request.task)
        found = record.measurement
        usable = found is not None and math.isfinite(found.value)
        return found if usable and record.documents == request.documents else None

    def write(self, request: MeasurementRequest, measurement: Measurement) -> None:
        """Write a measurement, in place of earlier ones."""
        coefficients, task = request.coefficients, request.task
        write_samples(
            self._folder / task,
            coefficients,
            measurement,
            self._definitions.get(task, ""),
            request.documents,
        )
        # The next one reads what a search that goes on would read.
        self._known.pop(evaluation_key(coefficients, task), None)

    def _read(self, coefficients: Mapping[str, float], task: str) -> _Record:
        key = evaluation_key(coefficients, task)
        if key not in self._known:
            content = read_sample_file(self._folder / task, coefficients)
            same = content.get("definition") == self._definitions.get(task, "")
            self._known[key] = _record_of(content, key) if same else _Record()
        return self._known[key]


@dataclass(frozen=True)
class _Record:
    """The usable content of a file."""

    answers: Answers | None = None
    measurement: Measurement | None = None
    documents: tuple[int, ...] | None = None


def _record_of(content: Mapping[str, Any], key: Key) -> _Record:
    answers, documents = answers_of(content), content.get("documents")
    try:
        line = EVALUATION.validate_json(json.dumps(content.get("measured")))
    except (ValidationError, ValueError):
        return _Record(answers)
    some = documents is not None
    if line.key != key or (some and (answers is None or [*answers.ids] != documents)):
        return _Record(answers)
    kept = ("value", "stderr", "n", "details", "seconds")
    found = Measurement(**{name: getattr(line, name) for name in kept})
    ids = answers.ids if some and answers is not None else None
    return _Record(answers, replace(found, answers=answers), ids)


def mean_of(answers: Answers) -> float:
    """Return the mean of scores, or its exponential, as the metric defines it."""
    total = math.fsum(answers.weights)
    products = zip(answers.weights, answers.values, strict=True)
    mean = math.fsum(w * v for w, v in products) / total if total else math.nan
    try:
        return math.exp(mean) if answers.exponential else mean
    except OverflowError:
        return math.inf


def answers_of(content: Mapping[str, Any]) -> Answers | None:
    """Return the scores in a file; None where it holds none, or no possible ones."""
    try:
        found = _SCORES.validate_json(json.dumps(content.get("answers")), strict=True)
    except (ValidationError, ValueError):
        return None
    rising = all(a < b for a, b in pairwise((-1, *found.ids)))
    paired = len(found.ids) == len(found.values) == len(found.weights)
    # Such that no square of a sum overflows.
    sized = all(abs(value) <= LARGEST for value in found.values)
    weighted = all(1 / LARGEST <= weight <= LARGEST for weight in found.weights)
    return found if rising and paired and sized and weighted else None


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


@dataclass(frozen=True)
class WonItems:
    """How one merge compares with another on the items that both were measured on."""

    won: int
    lost: int
    level: int
    most: tuple[tuple[str, float], ...]  # what differs most; larger is better


def won_items(
    ours: Answers | None, theirs: Answers | None, metric: Metric
) -> WonItems | None:
    """Count the items that one merge won and lost; None where they share no item."""
    if ours is None or theirs is None:
        return None
    one, other = (dict(zip(a.ids, a.values, strict=True)) for a in (ours, theirs))
    ahead = {i: metric.sign * (one[i] - other[i]) for i in one if i in other}
    won = sorted((i for i in ahead if ahead[i] > _ROUNDING), key=lambda i: -ahead[i])
    lost = sorted((i for i in ahead if ahead[i] < -_ROUNDING), key=lambda i: ahead[i])
    named = [*won[:_NAMED], *lost[:_NAMED]]
    found = WonItems(
        won=len(won),
        lost=len(lost),
        level=len(ahead) - len(won) - len(lost),
        most=tuple((str(i), float(f"{ahead[i]:.3g}")) for i in named),
    )
    return found if ahead else None
