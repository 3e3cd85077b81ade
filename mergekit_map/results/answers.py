"""The answers that values are means of, kept beside the records of the same items.

With those of all earlier merges, a part of the documents says nearly as much of a
further one as all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from mergekit_map.measurement import Answers, Measurement, Part
from mergekit_map.results.log import Key, evaluation_key
from mergekit_map.results.samples import read_sample_file, write_samples

_Index = Annotated[int, Field(ge=0)]
# Such that no square of a sum overflows.
_Size = Annotated[float, Field(ge=-1e50, le=1e50)]
_Weight = Annotated[float, Field(ge=1e-50, le=1e50)]
_Probability = Annotated[float, Field(gt=0, le=1)]


@validated(frozen=True, config=ConfigDict(strict=True))
class _Part:
    """The form of a part in a file."""

    ids: tuple[_Index, ...]
    probabilities: tuple[_Probability, ...]
    expected: _Weight

    def value(self) -> Part:
        """Rebuild the part."""
        return Part(self.ids, self.probabilities, self.expected)


@validated(frozen=True, config=ConfigDict(strict=True))
class _Answers:
    """The form of answers in a file."""

    ids: tuple[_Index, ...]
    values: tuple[_Size, ...]
    weights: tuple[_Weight, ...]
    margins: tuple[_Size, ...] | None = None
    exponential: bool = False
    probabilities: tuple[_Probability, ...] | None = None
    expected: _Weight | None = None
    before: _Part | None = None

    def value(self) -> Answers:
        """Rebuild the answers."""
        before = None if self.before is None else self.before.value()
        return Answers(**{**asdict(self), "before": before})


_ANSWERS: TypeAdapter[_Answers] = TypeAdapter(_Answers)


@dataclass(frozen=True)
class Answered:
    """The answers of a task on a merge, with the records of the same documents."""

    answers: Answers
    samples: tuple[Any, ...]


class KeptAnswers:
    """What is on record of the merges of one search, by task; kept in memory, too."""

    def __init__(self, folder: Path, definitions: Mapping[str, str]):
        self._folder = folder
        self._definitions = definitions  # fingerprint of each task
        self._known: dict[Key, Answered | None] = {}

    def read(self, coefficients: Mapping[str, float], task: str) -> Answered | None:
        """Read answers; None where there are none, or of another definition."""
        key = evaluation_key(coefficients, task)
        if key not in self._known:
            definition = self._definitions.get(task, "")
            folder = self._folder / task
            self._known[key] = _read_answers(folder, coefficients, definition)
        return self._known[key]

    def forget(self, coefficients: Mapping[str, float], task: str) -> None:
        """Read answers anew that somebody else may have written."""
        self._known.pop(evaluation_key(coefficients, task), None)

    def write(
        self, coefficients: Mapping[str, float], task: str, measurement: Measurement
    ) -> None:
        """Keep what was measured, in place of what was there."""
        definition = self._definitions.get(task, "")
        if measurement.answers is not None:
            earlier = self.read(coefficients, task)
            before = _drawn_before(earlier, measurement.answers)
            answers = replace(measurement.answers, before=before)
            measurement = replace(measurement, answers=answers)
        write_samples(self._folder / task, coefficients, measurement, definition)
        # The next one reads what a search that goes on would read.
        self.forget(coefficients, task)


def complete(
    part: Part,
    earlier: Answered | None,
    ask: Callable[[Sequence[int]], Measurement],
) -> Measurement:
    """Ask what is missing of a part, and put it together with what was answered before.

    The value is the plain mean of the part.
    """
    known = {} if earlier is None else _by_document(earlier)
    if missing := missing_ids(part, earlier):
        asked = ask(missing)
        assert asked.answers is not None  # who gives none refuses to be asked in part
        known |= _by_document(Answered(asked.answers, asked.samples))
    rows = [known[i] for i in part.ids]
    answers = Answers(
        ids=part.ids,
        values=tuple(row.value for row in rows),
        weights=tuple(row.weight for row in rows),
        margins=_all_or_none([row.margin for row in rows]),
        exponential=rows[0].exponential if rows else False,
        probabilities=part.probabilities,
        expected=part.expected,
    )
    return Measurement(
        value=mean_of(answers),
        stderr=None,
        n=len(rows),
        samples=tuple(row.sample for row in rows),
        answers=answers,
    )


def missing_ids(part: Part, earlier: Answered | None) -> list[int]:
    """List the documents of a part whose answers are not on record."""
    known = set() if earlier is None else set(earlier.answers.ids)
    return [i for i in part.ids if i not in known]


def mean_of(answers: Answers) -> float:
    """Give the mean of answers, or its exponential, as the metric has it."""
    total = math.fsum(answers.weights)
    products = zip(answers.weights, answers.values, strict=True)
    mean = math.fsum(w * v for w, v in products) / total if total else math.nan
    return math.exp(mean) if answers.exponential else mean


def _drawn_before(earlier: Answered | None, answers: Answers) -> Part | None:
    """Give the part that answers take the place of.

    The log has no line yet of what is on record if a search was stopped in between, so
    that the same is asked again: then it is the one before that.
    """
    if earlier is None:
        return None
    there = earlier.answers
    if (there.ids, there.probabilities) == (answers.ids, answers.probabilities):
        return there.before
    if there.probabilities is None or there.expected is None:
        return None
    return Part(there.ids, there.probabilities, there.expected)


@dataclass(frozen=True)
class _Row:
    """What is known of one document."""

    value: float
    weight: float
    margin: float | None
    exponential: bool
    sample: Any


def _by_document(answered: Answered) -> dict[int, _Row]:
    found = answered.answers
    margins = found.margins or [None] * len(found.ids)
    rows = zip(
        found.ids,
        found.values,
        found.weights,
        margins,
        answered.samples,
        strict=True,
    )
    return {i: _Row(v, w, m, found.exponential, s) for i, v, w, m, s in rows}


def _all_or_none(margins: Sequence[float | None]) -> tuple[float, ...] | None:
    known = tuple(margin for margin in margins if margin is not None)
    return known if known and len(known) == len(margins) else None


def _read_answers(
    folder: Path, coefficients: Mapping[str, float], definition: str
) -> Answered | None:
    content = read_sample_file(folder, coefficients)
    if content.get("definition") != definition:
        return None
    try:
        found = _ANSWERS.validate_json(json.dumps(content.get("answers")))
    except (ValidationError, ValueError):
        return None
    lists = (found.values, found.weights, found.margins, found.probabilities)
    rising = all(a < b for a, b in zip(found.ids, found.ids[1:], strict=False))
    whole = rising and all(len(part) == len(found.ids) for part in lists if part)
    before = found.before
    if before is not None and len(before.ids) != len(before.probabilities):
        return None
    samples = content.get("samples")
    if not whole or not isinstance(samples, list) or len(samples) != len(found.ids):
        return None
    return Answered(found.value(), tuple(samples))
