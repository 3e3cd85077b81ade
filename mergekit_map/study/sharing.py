"""Which of several shards measures what, and what each does until it is told the rest.

All shards run the same search on what all of them measured. What is measured next is a
function of that, so that they agree without a word: each measures its share, writes it
into its own log, and reads there what the others did. A shard that is gone has its
share measured by the next one. Where two take the same share, they lose time and
nothing else.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from mergekit_map.measurement import Wanted
from mergekit_map.results.company import Company
from mergekit_map.results.log import Evaluation, Key, evaluation_key, merge_key
from mergekit_map.results.shard_logs import Shard

_SOONEST, _LATEST = 0.01, 1.0  # seconds between two looks at the logs


class NoCompany(Exception):
    """What is needed next is for shards to measure that were never there."""

    def __init__(self, missing: Sequence[Shard]):
        self.missing = tuple(missing)
        super().__init__(", ".join(map(str, missing)))


class Sharing:
    """Knows who measures what, and waits for the others."""

    def __init__(
        self,
        shard: Shard,
        company: Company,
        log: Iterable[Evaluation],
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._shard, self._company, self._log = shard, company, log
        self._sleep = sleep
        self._owners: dict[object, int] = {}  # shard by what it measures, from 0

    def assign(self, ahead: Sequence[Wanted]) -> list[Wanted]:
        """Hear what will be asked, as all shards do; give the share of this one."""
        new = [one for one in ahead if _name(one) not in self._owners]
        seconds = seconds_by_task(self._log)
        keys = [evaluation_key(one.coefficients, one.task) for one in new]
        for one, owner in zip(new, shares(keys, seconds, self._shard.of), strict=True):
            self._owners[_name(one)] = owner
        return [one for one in ahead if self._owner(one) == self._shard]

    def is_own(self, wanted: Wanted) -> bool:
        """Tell whether it falls to this shard now: those before it are gone.

        Raises:
            NoCompany: it would, but who is to measure it was never there.
        """
        gone = []
        for shard in self._in_turn(wanted):
            if shard == self._shard:
                break
            if self._company.will_deliver(shard):
                return False
            gone.append(shard)
        if never := [s for s in gone if not self._company.was_there(s)]:
            raise NoCompany(never)
        return True

    def wait(self, waited: float) -> float:
        """Wait a little, as long as makes sense after so many seconds; give the sum."""
        pause = min(max(waited / 10, _SOONEST), _LATEST)
        self._sleep(pause)
        return waited + pause

    def _owner(self, wanted: Wanted) -> Shard:
        return Shard(self._owners.get(_name(wanted), 0) + 1, self._shard.of)

    def _in_turn(self, wanted: Wanted) -> list[Shard]:
        """List the shards, whose turn it is first before all others."""
        first, of = self._owner(wanted).number - 1, self._shard.of
        return [Shard((first + i) % of + 1, of) for i in range(of)]


def shares(
    asked: Sequence[Key], seconds: Mapping[str, float], members: int
) -> list[int]:
    """Share measurements among so many members; gives the member of each, from 0.

    Whole merges, one after the other, as long as there is one for each; tasks of the
    others such that all are done at about the same time, by what tasks took so far.
    """
    merges = list(dict.fromkeys(merge for merge, _ in asked))
    dealt = len(merges) - len(merges) % members
    owners = {merge: i % members for i, merge in enumerate(merges[:dealt])}
    rest = [i for i, (merge, _) in enumerate(asked) if merge not in owners]
    found = [owners.get(merge, 0) for merge, _ in asked]
    busy = [0.0] * members
    for i in sorted(rest, key=lambda i: (-seconds.get(asked[i][1], 1.0), i)):
        found[i] = busy.index(min(busy))
        busy[found[i]] += seconds.get(asked[i][1], 1.0)
    return found


def seconds_by_task(evaluations: Iterable[Evaluation]) -> dict[str, float]:
    """Give the median of what each task took."""
    took: dict[str, list[float]] = {}
    for e in evaluations:
        if not e.failed:
            took.setdefault(e.task, []).append(e.seconds)
    return {task: statistics.median(found) for task, found in took.items()}


def _name(wanted: Wanted) -> object:
    """Tell what is wanted from all else, another part of the documents included."""
    ids = None if wanted.part is None else wanted.part.ids
    return merge_key(wanted.coefficients), wanted.task, ids
