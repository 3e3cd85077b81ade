"""Measurements that workers made before their turn.

The log has its lines in the order in which one process measures. What a worker measures
sooner waits in ``evaluations.early.jsonl``, in lines of the same form. A line whose
turn came is in the log as well and does not count here any more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mergekit_map.files import write_atomically
from mergekit_map.measurement import Measurement
from mergekit_map.results.log import (
    EVALUATION,
    Evaluation,
    Key,
    append_line,
    encode,
    evaluation_key,
    read_log,
)
from mergekit_map.results.log_lines import drop_torn_line
from mergekit_map.search.arrays import finite

_OF_ITS_TURN = ("role", "foretold")  # which nobody knows before


class EarlyResults:
    """Measurements that wait for their turn; on the disk as soon as they are kept.

    Args:
        path: The file of those that wait.
        logged: Returns the measurements that had their turn.
    """

    def __init__(self, path: Path, logged: Callable[[], Iterable[Evaluation]]):
        self._path, self._logged = path, logged
        drop_torn_line(path)
        self._own = list(read_log(path))
        self._found: dict[Key, list[Evaluation]] = {}
        for e in self._own:
            self._add(e)
        self.tidy()

    def keep(self, evaluation: Evaluation) -> None:
        """Let a measurement wait; it is on the disk when this returns."""
        append_line(self._path, evaluation)
        self._own.append(evaluation)
        self._add(evaluation)

    def of(self, merge: str, definitions: Mapping[str, str]) -> Waiting:
        """Give what waits of a merge and tasks of these fingerprints."""
        return Waiting(self, merge, definitions)

    def find(
        self, key: Key, merge: str, definition: str, *, take: bool
    ) -> Evaluation | None:
        """Find what was measured on all documents; what is taken is not found again.

        Its line goes only once the log has it.
        """
        lines = self._found.get(key, [])
        for e in lines:
            if (e.merge, e.definition) == (merge, definition):
                if take:
                    lines.remove(e)
                return e
        return None

    def tidy(self) -> None:
        """Drop what the log has; the file goes with its last line."""
        logged = {_measured(e) for e in self._logged()}
        for lines in self._found.values():
            lines[:] = [e for e in lines if _measured(e) not in logged]
        left = [e for e in self._own if _measured(e) not in logged]
        if len(left) < len(self._own):
            text = "".join(encode(e) + "\n" for e in left)
            if text:
                write_atomically(self._path, text)
            else:
                self._path.unlink()
        self._own = left

    def _add(self, e: Evaluation) -> None:
        # What failed is tried again; a part of the documents is on record with them.
        if e.error is None and e.whole:
            self._found.setdefault(e.key, []).append(e)


@dataclass(frozen=True, eq=False)
class Waiting:
    """What waits of some fingerprints."""

    results: EarlyResults
    merge: str
    definitions: Mapping[str, str]  # of each task

    def of(self, definitions: Mapping[str, str]) -> Waiting:
        """Give what waits of the same merge and other definitions of the tasks."""
        return replace(self, definitions=definitions)

    def has(self, coefficients: Mapping[str, float], task: str) -> bool:
        """Tell whether a measurement on all documents waits."""
        return self._find(coefficients, task, take=False) is not None

    def take(self, coefficients: Mapping[str, float], task: str) -> Measurement | None:
        """Take a measurement on all documents, if it waits; its items are on record."""
        e = self._find(coefficients, task, take=True)
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
        """Let a measurement on all documents wait; it is on the disk then."""
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

    def _find(
        self, coefficients: Mapping[str, float], task: str, *, take: bool
    ) -> Evaluation | None:
        key = evaluation_key(coefficients, task)
        return self.results.find(key, self.merge, self.definitions[task], take=take)


def _measured(e: Evaluation) -> str:
    """Tell measurements apart, whatever they were made for."""
    record = EVALUATION.dump_python(e, mode="json")
    return json.dumps(
        {k: v for k, v in record.items() if k not in _OF_ITS_TURN}, sort_keys=True
    )
