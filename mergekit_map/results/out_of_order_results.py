"""Measurements that workers finished out of order.

The log has its lines in the order of a search with one process. A measurement that a
worker finishes sooner waits in ``evaluations.early.jsonl``, in the same format. Once a
line is in the log, its copy here is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mergekit_map.results.log import (
    Evaluation,
    append_line,
    drop_torn_line,
    encode,
    evaluation_key,
    read_log,
)
from mergekit_map.types import Measurement
from mergekit_map.utils.files import write_atomically


class OutOfOrderResults:
    """Measurements that wait for their place in the log; on the disk once kept.

    Args:
        path: The file of waiting measurements.
        logged: Returns the measurements that are in the log.
    """

    def __init__(self, path: Path, logged: Callable[[], Iterable[Evaluation]]):
        self.path, self._logged = path, logged
        drop_torn_line(path)
        self.lines = list(read_log(path))
        self.tidy()

    def tidy(self) -> None:
        """Drop what the log has; remove the file with its last line."""
        logged = {_measured(e) for e in self._logged()}
        self.lines = [e for e in self.lines if _measured(e) not in logged]
        if self.lines:
            write_atomically(self.path, "".join(encode(e) + "\n" for e in self.lines))
        else:
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Waiting:
    """Waiting measurements of some fingerprints."""

    results: OutOfOrderResults
    merge: str
    definitions: Mapping[str, str]  # of each task

    def find(self, coefficients: Mapping[str, float], task: str) -> Measurement | None:
        """Return a measurement on all documents, if it waits."""
        wanted = evaluation_key(coefficients, task), self.merge, self.definitions[task]
        for e in self.results.lines:
            # What failed is tried again; a part of the documents is on record anyway.
            waits = e.error is None and e.whole
            if waits and (e.key, e.merge, e.definition) == wanted:
                kept = ("value", "stderr", "n", "details", "gradient", "seconds")
                return Measurement(**{name: getattr(e, name) for name in kept})
        return None

    def keep(
        self, coefficients: Mapping[str, float], task: str, measured: Measurement
    ) -> None:
        """Keep a measurement on all documents; it is on the disk when this returns."""
        evaluation = Evaluation.of(
            measured,
            coefficients=coefficients,
            task=task,
            merge=self.merge,
            definition=self.definitions[task],
        )
        append_line(self.results.path, evaluation)
        self.results.lines.append(evaluation)


def _measured(e: Evaluation) -> str:
    """Return the identity of a measurement without its purpose; NaN equals NaN."""
    return repr((e.key, e.merge, e.definition, e.value, e.stderr, e.seconds))
