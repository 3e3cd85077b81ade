"""Files of measurements: ``samples/MERGE/TASK/COEFFICIENTS-AND-DEFINITION.json``.

A file has the measurement of a task on a merge, and a record of each item: a document,
a block or a question. Scores of the same items of two merges define the paired standard
error of their difference, in a resumed search and on held-out data, too.

A log has its lines in the order of a search with one process. A measurement that a
worker finished sooner, or that a kill kept out of the log, is read from its file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import numpy as np
from pydantic import AfterValidator, Field, ValidationError

from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.log import RIVALS, Evaluation, merge_key
from mergekit_map.results.paired import Differences, stderrs_of_differences
from mergekit_map.results.records import (
    LARGEST,
    MOST_BYTES,
    Coefficients,
    Finite,
    Frozen,
    Line,
    Stderr,
)
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import Answers, Measurement, MeasurementRequest
from mergekit_map.utils.files import (
    digest,
    plain,
    read_whole,
    unwritable,
    write_atomically,
)

_ROUNDING = 1e-9  # between sums of the same numbers
_NO_NOISE = 1e-4  # of a standard error


def _checked(answers: Answers) -> Answers:
    """Return the scores; raise ValueError if nobody can have measured them."""
    rising = all(a < b for a, b in pairwise((-1, *answers.ids)))
    paired = len(answers.ids) == len(answers.values) == len(answers.weights)
    # Such that no square of a sum overflows.
    sized = all(abs(value) <= LARGEST for value in answers.values)
    weighted = all(1 / LARGEST <= weight <= LARGEST for weight in answers.weights)
    if not (rising and paired and sized and weighted):
        raise ValueError("ids rise, and each has a value and a positive weight")
    return answers


class _Measured(Frozen):
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
    answers: Annotated[Answers, AfterValidator(_checked)] | None = None


class SampleStore:
    """The stored measurements of a search, by the present definitions of its tasks."""

    def __init__(self, folder: Path, definitions: Mapping[str, str]):
        self._folder = folder
        self._fingerprints = definitions  # by task

    def write(self, request: MeasurementRequest, measurement: Measurement) -> None:
        """Write a measurement with its records, in place of an earlier one."""
        if not (run := self._folder.parent.parent).exists():
            raise unwritable(run, FileNotFoundError("it is no longer there"))
        details = {k: v for k, v in measurement.details.items() if abs(v) <= LARGEST}
        definition = self._fingerprints.get(request.task, "")
        content: dict[str, Any] = {
            "coefficients": request.coefficients,
            "definition": definition,
            "documents": request.documents,
            "measured": {
                "value": measurement.value,
                "stderr": measurement.stderr,
                "n": measurement.n,
                "details": details,
                "seconds": measurement.seconds or 0.0,
            },
            "samples": measurement.samples,
        }
        if measurement.answers is not None:
            content["answers"] = vars(measurement.answers)
        text = json.dumps(plain(content), allow_nan=False, ensure_ascii=False) + "\n"
        path = _path(self._folder / request.task, request.coefficients, definition)
        # A model may write lone surrogates, which cannot be encoded.
        write_atomically(path, text.encode(errors="replace"))

    def read(self, request: MeasurementRequest) -> Measurement | None:
        """Read the measurement of a request; None if there is no finite one."""
        file = self._read_file(request.coefficients, request.task)
        measured, answers, wanted = file.measured, file.answers, request.documents
        if measured is None or measured.value is None or file.documents != wanted:
            return None
        if wanted is not None and (answers is None or answers.ids != wanted):
            return None  # some document has no answer
        return Measurement(**measured.model_dump(), answers=answers)

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Read the scores of the items; None if there are none."""
        return self._read_file(coefficients, task).answers

    def _read_file(self, coefficients: Mapping[str, float], task: str) -> SampleFile:
        """Read a file; an empty one if there is none by the present definition."""
        definition = self._fingerprints.get(task, "")
        return read_samples(self._folder / task, coefficients, definition)


def read_samples(
    folder: Path, coefficients: Mapping[str, float], definition: str
) -> SampleFile:
    """Read the file of a task on a merge; an empty one if missing or damaged."""
    path = _path(folder, coefficients, definition)
    if not path.exists():  # earlier versions kept one definition only
        path = folder / f"{digest(coefficients)}.json"
    try:
        file = SampleFile.model_validate_json(read_whole(path, MOST_BYTES))
    except (OSError, ValidationError):
        return SampleFile()  # whoever wants them can do without
    return file if file.definition == definition else SampleFile()


def copy_samples(
    source: Path, of: Evaluation, target: Path, names: Mapping[str, float]
) -> None:
    """Copy the records of a measurement to the coefficients its merge has elsewhere."""
    file = read_samples(source, of.coefficients, of.definition)
    if file.coefficients is not None:
        renamed = file.model_copy(update={"coefficients": dict(names)})
        content = renamed.model_dump_json(exclude_unset=True)
        write_atomically(_path(target, names, of.definition), content + "\n")


def _path(folder: Path, coefficients: Mapping[str, float], definition: str) -> Path:
    return folder / f"{digest([coefficients, definition])}.json"


def agree(answers: Answers | None, reading: Reading) -> TypeGuard[Answers]:
    """Whether the mean of scores is the measured value, up to rounding.

    Otherwise they are of another definition of the task, or of another machine.
    """
    if answers is None or reading.value is None or reading.documents is not None:
        return False
    margin = _NO_NOISE * (reading.stderr or 0.0)  # a task may add up in float32
    return math.isclose(answers.mean, reading.value, rel_tol=_ROUNDING, abs_tol=margin)


@dataclass(frozen=True, eq=False)
class Itemised:
    """The influence of each item on a value."""

    items: tuple[tuple[str, int], ...]  # the part of a group, and the item in all
    influences: FloatArray  # (n,) in the unit of the value


def with_differences(front: Front, run: RunFolder, log: Iterable[Evaluation]) -> Front:
    """Compare the merges of a front item by item where its run folder has records."""
    manifest = run.read_manifest()
    evaluations = list(log)
    own = {merge_key(e.coefficients) for e in evaluations if e.role not in RIVALS}
    rivals = {merge_key(e.coefficients) for e in evaluations} - own

    def read(merge: Merge, task: str) -> Itemised | None:
        if merge.linear is None and merge_key(merge.coefficients) in rivals:
            return None
        folder = run.samples((merge.linear or manifest).merge)
        definition = manifest.definitions.get(task, "")
        found = read_samples(folder / task, merge.logged, definition)
        if not agree(found.answers, merge.measured[task]):
            return None
        return itemise(found.answers, [str(s.get("task", "")) for s in found.samples])

    known = {task: [read(m, task) for m in front.all_merges] for task in front.tasks}
    return front.model_copy(update={"differences": differences_of(known)})


def differences_of(
    known: Mapping[str, Sequence[Itemised | None]],
) -> dict[str, Differences]:
    """Compare merges on each task where two or more have the same items."""
    return {t: d for t, items in known.items() if (d := compare_items(items))}


def itemise(answers: Answers, parts: Sequence[str] | None = None) -> Itemised | None:
    """Return the influence of each item on the value: what it is without the item.

    None where items do not define a standard error: with fewer than two, or an infinite
    value. Without ``parts``, or with fewer than two items in one, there is one part.
    """
    names = np.array([""] * len(answers.ids) if parts is None else parts)
    value = answers.mean
    if not len(names) == len(answers.ids) >= 2 or not math.isfinite(value):
        return None
    if min(np.unique(names, return_counts=True)[1]) < 2:
        names[:] = ""  # as a part of a group may be left out
    values, weights = np.array(answers.values), np.array(answers.weights)
    residuals = np.empty_like(values)
    for name in np.unique(names):
        part = names == name
        x, w, n = values[part], weights[part], int(part.sum())
        changes = w * (x - np.average(x, weights=w)) * w.sum() / (w.sum() - w)
        residuals[part] = (changes - changes.mean()) * (n - 1) / n
    influences = (value if answers.exponential else 1.0) * residuals / weights.sum()
    if not np.isfinite(influences).all():
        return None
    return Itemised(tuple(zip(names.tolist(), answers.ids, strict=True)), influences)


def compare_items(known: Sequence[Itemised | None]) -> Differences | None:
    """Compare the largest set of merges that were measured on the same items."""
    groups: dict[tuple[tuple[str, int], ...], dict[int, FloatArray]] = {}
    for index, one in enumerate(known):
        if one is not None:
            groups.setdefault(one.items, {})[index] = one.influences
    items, same = max(groups.items(), key=lambda g: len(g[1]), default=((), {}))
    if len(same) < 2:
        return None
    parts = np.unique([part for part, _ in items], return_inverse=True)[1]
    U = np.array([*same.values()])
    # Values are answers, many of them equal, or amounts.
    answers = bool(np.median([len(np.unique(row)) for row in U]) < len(items) / 2)
    stderr = stderrs_of_differences(U, parts)
    return Differences.of([*same], stderr, len(items), answers=answers)
