"""The stored results of checking whether an engine takes merges in place."""

from __future__ import annotations

from pydantic import Field, ValidationError

from mergekit_map.errors import ArtifactError
from mergekit_map.results.records import Record, read_record
from mergekit_map.utils.files import cache_home, write_atomically


class EngineCheck(Record):
    """The result of checking one kind of engine."""

    equal: bool
    """Whether a merge written into it answers as its checkpoint does."""
    why: str
    """The reason against it."""
    gap: float | None = None
    """The largest difference of log-probabilities."""


class _Verdicts(Record):
    kinds: dict[str, EngineCheck] = Field(default_factory=dict)


def known_check(kind: str) -> EngineCheck | None:
    """Return the stored result for a kind of engine; None where it was not checked."""
    return _read().kinds.get(kind)


def remember(kind: str, verdict: EngineCheck) -> None:
    """Store a result for later searches of this user."""
    found = _Verdicts(kinds={**_read().kinds, kind: verdict})
    path = cache_home() / "engines.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, found.model_dump_json(indent=1) + "\n")


def _read() -> _Verdicts:
    path = cache_home() / "engines.json"
    if not path.exists():
        return _Verdicts()
    try:
        return read_record(path, _Verdicts, "list of engines")
    except (ArtifactError, ValidationError):
        return _Verdicts()  # they are seen again
