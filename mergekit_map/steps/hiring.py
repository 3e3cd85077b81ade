"""Whoever measures for a search: processes of its own, or workers that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary, WeakSet

from mergekit_map.errors import ConfigError
from mergekit_map.steps.crew import Crew, Gang
from mergekit_map.steps.jobs import Member
from mergekit_map.steps.processes import Processes

# Of workers that are there, which say once that they can be asked something.
_MEMBERS: WeakKeyDictionary[Gang, list[Member]] = WeakKeyDictionary()
_AT_WORK: WeakSet[Gang] = WeakSet()


@contextmanager
def hired(workers: int | Gang | None) -> Iterator[Crew | None]:
    """Give a crew of so many processes, or of workers that are there; None for none.

    Raises:
        ConfigError: they work for another search.
    """
    if workers is None:
        yield None
    elif isinstance(workers, int):
        with Processes(workers) as processes:
            yield Crew(processes, [Member() for _ in range(workers)])
    else:
        if workers in _AT_WORK:
            raise ConfigError(
                "these workers work for another search, and for one at a time; wait "
                "for its end, or give this one workers of its own"
            )
        known = _MEMBERS.setdefault(workers, [Member() for _ in range(workers.count)])
        _AT_WORK.add(workers)
        try:
            yield Crew(workers, known)
        finally:
            _AT_WORK.discard(workers)
