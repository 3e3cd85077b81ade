"""Shards: searches that share the measuring of one run folder, each in its own log.

Nobody waits for a lock of somebody else, and there is no server: a shard appends to its
own ``evaluations.I-of-N.jsonl`` alone and reads those of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from mergekit_map.config.wrong_values import shown
from mergekit_map.errors import ArtifactError, ConfigError
from mergekit_map.results.growing_log import GrowingLog
from mergekit_map.results.log import EVALUATION, LOCK_NAME, Evaluation, Key
from mergekit_map.results.log_lines import drop_torn_line, whole_lines
from mergekit_map.results.records import in_one_sentence

_MOST = 10_000  # each reads the logs of all others
_LOG = re.compile(r"evaluations\.([1-9]\d*)-of-([1-9]\d*)\.jsonl")


@dataclass(frozen=True, order=True)
class Shard:
    """One of so many that share a search."""

    number: int  # from 1
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def log_name(self) -> str:
        """Name the log that it alone writes."""
        return f"evaluations.{self.number}-of-{self.of}.jsonl"

    @property
    def others(self) -> list[Shard]:
        """List those that it shares with."""
        numbers = range(1, self.of + 1)
        return [Shard(number, self.of) for number in numbers if number != self.number]


def read_shard(text: str) -> Shard:
    """Read ``2/8``.

    Raises:
        ConfigError: it is no shard of any number.
    """
    found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
    if found is None:
        raise ConfigError(
            "--shard is written as I/N, for example 2/8, the second of eight; got "
            f"{shown(text)}"
        )
    if max(map(len, found.groups())) > len(str(_MOST)) or int(found[2]) > _MOST:
        raise ConfigError(
            f"--shard: at most {_MOST} shards can share a search, got {shown(text)}"
        )
    number, of = map(int, found.groups())
    if not 1 <= number <= of:
        known = f"those of {of} are 1/{of} to {of}/{of}" if of else "the first is 1/1"
        raise ConfigError(f"--shard: there is no shard {text.strip()}: {known}")
    return Shard(number, of)


@contextmanager
def locked(run: Path, shard: Shard) -> Iterator[Path]:
    """Hold the log of a shard, without what a kill cut short; gives its path.

    Raises:
        ArtifactError: the same shard runs already.
    """
    log = run / shard.log_name
    try:
        with FileLock(_lock_of(log)).acquire(timeout=0):
            drop_torn_line(log)
            yield log
    except Timeout:
        raise ArtifactError(
            f"shard {shard} of {run} runs already; wait for it, or start another one"
        ) from None


def shards_in(run: Path) -> list[Shard]:
    """List the shards that left a log in a run folder, whatever their number."""
    matches = (_LOG.fullmatch(path.name) for path in run.glob("evaluations.*.jsonl"))
    return sorted(Shard(int(m[1]), int(m[2])) for m in matches if m is not None)


def refuse_running(run: Path) -> None:
    """Refuse a folder that shards are writing to.

    Raises:
        ArtifactError: with the shards.
    """
    logs = [(shard, _lock_of(run / shard.log_name)) for shard in shards_in(run)]
    if held := [str(shard) for shard, lock in logs if _is_held(lock)]:
        raise ArtifactError(
            f"shard {', '.join(held)} of {run} is measuring; wait for it, or stop it: "
            "what it has measured is kept"
        )


class ShardLogs:
    """What the shards of a run folder measured, read on as their logs grow."""

    def __init__(self, run: Path, own: Shard) -> None:
        self._run, self._own = run, own
        self._read: dict[Shard, int] = {}  # bytes that were read of a log
        self._counted: dict[Shard, int] = {}  # and lines
        self._found: dict[Key, dict[Shard, list[Evaluation]]] = {}
        self._look()
        of_own = (e for of_key in self._found.values() for e in of_key.get(own, []))
        self._file = GrowingLog(run / own.log_name, of_own)
        # What failed here is tried again.
        for of_key in self._found.values():
            mine = of_key.get(own, [])
            mine[:] = [e for e in mine if e.error is None]

    def keep(self, evaluation: Evaluation) -> None:
        """Add a measurement of this shard; it is on the disk when this returns."""
        self._file.append(evaluation)
        self._look()

    def check(self) -> None:
        """Refuse a log of this shard that somebody else changed.

        Raises:
            ArtifactError: it is not as it was left.
        """
        self._file.check()

    def find(
        self, key: Key, merge: str, definition: str, *, take: bool = False
    ) -> Evaluation | None:
        """Find what was measured on all documents."""
        del take  # what a shard measured stays in its log
        found = self.all_of(key, merge, definition)
        return next((e for e in found if e.whole and e.error is None), None)

    def all_of(self, key: Key, merge: str, definition: str) -> list[Evaluation]:
        """List what was measured so far, that of the first shard first."""
        self._look()
        by_shard = sorted(self._found.get(key, {}).items())
        return [
            e
            for _, lines in by_shard
            for e in lines
            if (e.merge, e.definition) == (merge, definition)
        ]

    def count(self) -> dict[Shard, int]:
        """Count what each shard has measured."""
        counts = dict.fromkeys(self._read, 0)
        for of_key in self._found.values():
            for shard, lines in of_key.items():
                counts[shard] += len(lines)
        return counts

    def _look(self) -> None:
        for shard in shards_in(self._run):
            for e in self._lines(shard):
                self._found.setdefault(e.key, {}).setdefault(shard, []).append(e)

    def _lines(self, shard: Shard) -> Iterator[Evaluation]:
        log, start = self._run / shard.log_name, self._read.get(shard, 0)
        lines = whole_lines(log, start)
        self._read[shard] = start + sum(len(line) + 1 for line in lines)
        first = self._counted.get(shard, 0) + 1
        self._counted[shard] = first - 1 + len(lines)
        for number, line in enumerate(lines, start=first):
            try:
                yield EVALUATION.validate_json(line)
            except ValidationError as error:
                raise ArtifactError(
                    f"{log}:{number}: not an evaluation: {in_one_sentence(error)}; "
                    "copy the file anew, or remove this line"
                ) from None


def _lock_of(log: Path) -> Path:
    return log.with_name(f"{LOCK_NAME}.{log.stem}")


def _is_held(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with FileLock(path).acquire(timeout=0):
            return False
    except Timeout:
        return True
