"""Measurements that workers finished out of order.

The log has its lines in the order of a search with one process. A measurement that a
worker finishes sooner waits in ``evaluations.early.jsonl``, in the same format. Once a
line is in the log, its copy here is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mergekit_map.results.log import (
    Evaluation,
    append_line,
    drop_torn_line,
    encode,
    evaluation_key,
    read_log,
)
from mergekit_map.surrogates.arrays import finite
from mergekit_map.types import Measurement
from mergekit_map.utils.files import write_atomically


class OutOfOrderResults:
    """Measurements that wait for their place in the log; on the disk once kept.

    Args:
        path: The file of waiting measurements.
        logged: Returns the measurements that are in the log.
    """

    def __init__(self, path: Path, logged: Callable[[], Iterable[Evaluation]]):
        self._path, self._logged = path, logged
        self._taken: list[Evaluation] = []  # whose line stays until the log has it
        drop_torn_line(path)
        self._lines = list(read_log(path))
        self.tidy()

    def keep(self, evaluation: Evaluation) -> None:
        """Keep a measurement; it is on the disk when this returns."""
        append_line(self._path, evaluation)
        self._lines.append(evaluation)

    def of(self, merge: str, definitions: Mapping[str, str]) -> Waiting:
        """Return the waiting measurements of a merge with these task fingerprints."""
        return Waiting(self, merge, definitions)

    def find(self, wanted: object, *, take: bool) -> Evaluation | None:
        """Return a measurement by its key; None once it is taken."""
        for e in self._lines:
            # What failed is tried again; a part of the documents is on record anyway.
            waits = e not in self._taken and e.error is None and e.whole
            if waits and (e.key, e.merge, e.definition) == wanted:
                if take:
                    self._taken.append(e)
                return e
        return None

    def tidy(self) -> None:
        """Drop what the log has; remove the file with its last line."""
        logged = {_measured(e) for e in self._logged()}
        left = [e for e in self._lines if _measured(e) not in logged]
        if len(left) < len(self._lines):
            if left:
                text = "".join(encode(e) + "\n" for e in left)
                write_atomically(self._path, text)
            else:
                self._path.unlink()
        self._lines = left


@dataclass(frozen=True, eq=False)
class Waiting:
    """Waiting measurements of some fingerprints."""

    results: OutOfOrderResults
    merge: str
    definitions: Mapping[str, str]  # of each task

    def of(self, definitions: Mapping[str, str]) -> Waiting:
        """Return those of the same merge and other definitions of the tasks."""
        return replace(self, definitions=definitions)

    def has(self, coefficients: Mapping[str, float], task: str) -> bool:
        """Whether a measurement on all documents waits."""
        return self.results.find(self._name(coefficients, task), take=False) is not None

    def take(self, coefficients: Mapping[str, float], task: str) -> Measurement | None:
        """Take a measurement on all documents, if it waits; its items are on record."""
        e = self.results.find(self._name(coefficients, task), take=True)
        if e is None:
            return None
        return Measurement(
            value=e.value,
            stderr=e.stderr,
            n=e.n,
            details=e.details,
            gradient=e.gradient,
            seconds=e.seconds,
        )

    def keep(
        self, coefficients: Mapping[str, float], task: str, measured: Measurement
    ) -> None:
        """Keep a measurement on all documents; it is on the disk when this returns."""
        evaluation = Evaluation(
            coefficients=coefficients,
            task=task,
            role="design",  # until somebody asks for it
            value=measured.value,
            stderr=finite(measured.stderr),
            n=measured.n,
            seconds=round(measured.seconds or 0.0, 4),
            merge=self.merge,
            definition=self.definitions[task],
            details={k: v for k, v in measured.details.items() if math.isfinite(v)},
            gradient=measured.gradient,
        )
        self.results.keep(evaluation)

    def _name(self, coefficients: Mapping[str, float], task: str) -> object:
        key = evaluation_key(coefficients, task)
        return key, self.merge, self.definitions[task]


def _measured(e: Evaluation) -> str:
    """Return the identity of a measurement without its purpose; NaN equals NaN."""
    return repr((e.key, e.merge, e.definition, e.value, e.stderr, e.seconds))
