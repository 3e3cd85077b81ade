"""The scores of single documents, kept beside the records of the same items.

A resumed search estimates the value on all documents from them, and held-out
measurements are paired by them document by document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from mergekit_map.results.log import Key, evaluation_key
from mergekit_map.results.samples import read_sample_file, write_samples
from mergekit_map.types import Answers, Measurement

_Index = Annotated[int, Field(ge=0)]
# Such that no square of a sum overflows.
_Size = Annotated[float, Field(ge=-1e50, le=1e50)]
_Weight = Annotated[float, Field(ge=1e-50, le=1e50)]


@validated(frozen=True, config=ConfigDict(strict=True))
class _Answers:
    """The format of a file of scores."""

    ids: tuple[_Index, ...]
    values: tuple[_Size, ...]
    weights: tuple[_Weight, ...]
    exponential: bool = False


_ANSWERS: TypeAdapter[_Answers] = TypeAdapter(_Answers)


class AnswerStore:
    """The stored scores of the merges of one search, by task; cached in memory."""

    def __init__(self, folder: Path, definitions: Mapping[str, str]):
        self._folder = folder
        self._definitions = definitions  # fingerprint of each task
        self._known: dict[Key, Answers | None] = {}

    def read(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Read scores; None without any, or with another definition of the task."""
        key = evaluation_key(coefficients, task)
        if key not in self._known:
            definition = self._definitions.get(task, "")
            folder = self._folder / task
            self._known[key] = _read_answers(folder, coefficients, definition)
        return self._known[key]

    def write(
        self, coefficients: Mapping[str, float], task: str, measurement: Measurement
    ) -> None:
        """Write the scores of a measurement, in place of earlier ones."""
        definition = self._definitions.get(task, "")
        write_samples(self._folder / task, coefficients, measurement, definition)
        # The next one reads what a search that goes on would read.
        self._known.pop(evaluation_key(coefficients, task), None)


def mean_of(answers: Answers) -> float:
    """Return the mean of scores, or its exponential, as the metric defines it."""
    total = math.fsum(answers.weights)
    products = zip(answers.weights, answers.values, strict=True)
    mean = math.fsum(w * v for w, v in products) / total if total else math.nan
    return math.exp(mean) if answers.exponential else mean


def _read_answers(
    folder: Path, coefficients: Mapping[str, float], definition: str
) -> Answers | None:
    content = read_sample_file(folder, coefficients)
    if content.get("definition") != definition:
        return None
    try:
        found = _ANSWERS.validate_json(json.dumps(content.get("answers")))
    except (ValidationError, ValueError):
        return None
    rising = all(a < b for a, b in pairwise(found.ids))
    paired = len(found.ids) == len(found.values) == len(found.weights)
    return Answers(**asdict(found)) if rising and paired else None
