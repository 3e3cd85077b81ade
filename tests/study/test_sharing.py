"""Who measures what, without a word between them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mergekit_map.measurement import Wanted
from mergekit_map.results.company import Company
from mergekit_map.results.log import Key
from mergekit_map.results.shard_logs import Shard
from mergekit_map.study.sharing import NoCompany, Sharing, shares

MERGES = [(("a", 0.1 * i),) for i in range(7)]
TASKS = ("short", "long", "other")


def asked(count: int) -> list[Key]:
    return [(merge, task) for merge in MERGES[:count] for task in TASKS]


def test_merges_go_whole_to_one_shard_each_while_there_is_one_for_all() -> None:
    found = shares(asked(4), {}, 2)

    assert found == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]


def test_tasks_of_one_merge_are_shared_by_what_they_took() -> None:
    seconds = {"short": 1.0, "long": 4.0, "other": 2.9}

    assert shares(asked(1), seconds, 2) == [1, 0, 1]
    assert shares(asked(1), seconds, 3) == [2, 0, 1]
    assert shares(asked(3), seconds, 2) == [0, 0, 0, 1, 1, 1, 1, 0, 1]


def test_no_member_is_busy_longer_than_it_must_be() -> None:
    """Longest first is at most 4/3 - 1/(3 m) of the best (Graham 1969)."""
    rng = np.random.default_rng(0)
    for members in (2, 3, 4):
        names = [f"task {i}" for i in range(9)]
        seconds = dict(zip(names, rng.uniform(1, 9, 9), strict=True))
        found = shares([(MERGES[0], name) for name in names], seconds, members)
        busy = Counter[int]()
        for name, member in zip(names, found, strict=True):
            busy[member] += seconds[name]
        least = max(sum(seconds.values()) / members, max(seconds.values()))
        assert max(busy.values()) <= (4 / 3 - 1 / (3 * members)) * 1.1 * least


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def wanted(*tasks: str) -> list[Wanted]:
    return [Wanted({"a": 0.5}, task) for task in tasks]


def test_who_is_asked_twice_gives_the_same_share(tmp_path: Path) -> None:
    sharing = Sharing(Shard(1, 2), Company(tmp_path, Shard(1, 2)), [])
    ahead = wanted("one", "two", "three", "four")

    own = sharing.assign(ahead)

    assert [one.task for one in own] == ["one", "three"]
    assert sharing.assign(ahead[1:]) == own[1:]
    more = sharing.assign(ahead[2:] + wanted("five"))
    assert [one.task for one in more] == ["three", "five"]


def test_the_share_of_a_shard_that_falls_silent_goes_to_the_next_one(
    tmp_path: Path,
) -> None:
    clock = Clock()
    one, two, three = (Shard(i, 3) for i in (1, 2, 3))
    ahead = wanted("first", "second", "third")
    company = Company(tmp_path, three, silence=60, clock=clock)
    sharing = Sharing(three, company, [])
    sharing.assign(ahead)

    with Company(tmp_path, one), company:
        assert not sharing.is_own(ahead[0])
        with Company(tmp_path, two):
            assert not sharing.is_own(ahead[1])
        # The second one has left: its share is the third one's.
        assert sharing.is_own(ahead[1])
        assert not sharing.is_own(ahead[0])
        assert sharing.is_own(ahead[2])


def test_a_shard_that_was_killed_is_waited_for_until_it_is_silent_for_long(
    tmp_path: Path,
) -> None:
    clock = Clock()
    one, two = Shard(1, 2), Shard(2, 2)
    company = Company(tmp_path, two, silence=60, clock=clock)
    sharing = Sharing(two, company, [])
    ahead = wanted("first", "second")
    sharing.assign(ahead)
    sign = tmp_path / "evaluations.1-of-2.jsonl.alive"

    with company:
        sign.write_text("1 0 measuring\n")
        assert not sharing.is_own(ahead[0])
        clock.now = 59
        assert not sharing.is_own(ahead[0])
        sign.write_text("2 0 measuring\n")
        assert company.will_deliver(one)
        clock.now = 118
        assert not sharing.is_own(ahead[0])
        clock.now = 119.1
        assert sharing.is_own(ahead[0])


def test_two_that_wait_for_each_other_do_not_wait_for_ever(tmp_path: Path) -> None:
    clock = Clock()
    company = Company(tmp_path, Shard(2, 2), silence=1000, clock=clock)
    sign = tmp_path / "evaluations.1-of-2.jsonl.alive"

    with company:
        sign.write_text("1 7 waiting\n")
        assert company.will_deliver(Shard(1, 2))
        clock.now = 29
        sign.write_text("2 7 waiting\n")
        assert company.will_deliver(Shard(1, 2))
        clock.now = 31
        sign.write_text("3 7 waiting\n")
        assert not company.will_deliver(Shard(1, 2))
        sign.write_text("4 8 measuring\n")
        assert company.will_deliver(Shard(1, 2))


def test_who_was_never_there_is_missing(tmp_path: Path) -> None:
    clock = Clock()
    company = Company(tmp_path, Shard(2, 2), silence=60, clock=clock)
    sharing = Sharing(Shard(2, 2), company, [])
    ahead = wanted("first", "second")
    sharing.assign(ahead)

    with company:
        assert not sharing.is_own(ahead[0])  # it may be on its way
        clock.now = 61
        with pytest.raises(NoCompany, match="1/2") as found:
            sharing.is_own(ahead[0])

    assert found.value.missing == (Shard(1, 2),)
