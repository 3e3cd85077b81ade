"""Commands that are killed by ``kill -9`` at what they do to files or to the Hub.

However a command ends, the next one finds files that agree, every measurement once, and
nothing that is nobody's; and it ends as one that nobody disturbed.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

from attack import Attack, Limits, first
from small_search import (
    DEMO,
    PUSH,
    copied,
    disagreement,
    lines,
    lost_or_doubled,
    run_in,
    wrongly_pushed,
)

# What changes a folder, or the Hub: a command is killed right before or after one.
CALLS = {
    os: ("rename", "replace", "unlink", "remove", "link", "rmdir", "fsync", "mkdir"),
    socket.socket: ("connect", "send", "sendall", "recv"),
}


@dataclass(frozen=True)
class Case:
    """A command, what it needs, and what it makes."""

    words: tuple[str, ...]
    needs: tuple[str, ...] = ()
    run: str | None = "run"  # whose files are to agree
    kills: int = 8
    next: tuple[str, ...] | None = None  # the next command, if it is another one
    out: str | None = None  # a checkpoint, that is whole or not there


CASES = {
    "search": Case(("search", "config.yml", "new"), run="new", kills=16),
    "search to disk": Case(("search", "disk.yml", "new"), run="new"),
    "search again": Case(("search", "config.yml", "run"), ("run",)),
    "run": Case(("run", "config.yml", "out"), run="out.run", kills=8, out="out"),
    "select": Case(("select", "run", "--index", "1"), ("run",), kills=14),
    "select, then report": Case(
        ("select", "run", "--index", "1"),
        ("run",),
        kills=12,
        next=("report", "run"),
    ),
    "select by preference, then merge": Case(
        ("select", "run", "--prefer", "one=3,two=1"),
        ("run",),
        kills=10,
        next=("merge", "run", "out"),
    ),
    "merge": Case(("merge", "run", "out"), ("run",), kills=14, out="out"),
    "merge of another point": Case(
        ("merge", "run", "out", "--index", "2"), ("run",), out="out"
    ),
    "report": Case(("report", "run"), ("run",), kills=6),
    "report elsewhere": Case(
        ("report", "run", "--out", "page.html"), ("run",), kills=4
    ),
    "cache --remove": Case(("cache", "--remove", "all"), run=None, kills=6),
    "cache --limit": Case(("cache", "--limit", "1GB"), run=None, kills=2),
    "init": Case(
        ("init", "new.yml", "--base", "b", "--model", "a", "--task", "gsm8k"),
        run=None,
        kills=2,
    ),
    "compare": Case(
        ("compare", "run", "--opponents=random", "--budget=2", "--preferences=1"),
        ("run",),
        kills=4,
    ),
    "search --workers 2": Case(
        ("search", "config.yml", "new", "--workers", "2"), run="new", kills=3
    ),
    "push": Case(PUSH, ("run", "merged"), run=None, kills=20),
    "demo": Case(DEMO, run="demo/run", kills=14, out="demo/merged"),
}


def attacks(seed: int) -> Iterator[Attack]:
    """Kill every command at operations spread over all."""
    del seed
    for name, case in CASES.items():
        for part in range(case.kills):
            at = (part + 1) / case.kills
            title = f"{name}: kill -9 at {part + 1}/{case.kills} of its file operations"
            yield Attack(title, functools.partial(_killed, case, at))


def drawn(attacks: Sequence[Attack], rng: Random) -> Iterator[Attack]:
    """Draw kills of all commands in turn."""
    mixed = rng.sample(attacks, len(attacks))
    by_case = [
        [attack for attack in mixed if attack.name.startswith(f"{name}:")]
        for name in CASES
    ]
    yield from (one for row in zip_longest(*by_case) for one in row if one is not None)


def _killed(case: Case, at: float, folder: Path) -> str:
    copied(folder, *case.needs)
    number = max(1, round(at * _operations(case)))
    before = _lines(folder)
    died = run_in(folder, case.words, _limits(functools.partial(_kill_at, number)))
    if died.code not in (-signal.SIGKILL, 0):
        return f"it was to be killed at operation {number}: {died.code} {died.said}"
    return first(_lost(before, folder), _goes_on(case, folder))


def _goes_on(case: Case, folder: Path) -> str:
    """Say whether the next command does not end as if nothing had happened."""
    before, whole = _lines(folder), _is_whole(case, folder)
    done = run_in(folder, case.next or case.words)
    if done.code == 2 and "exists already" in done.err and whole:
        # What was made is there; so that something comes next:
        done = run_in(folder, ["report", case.run] if case.run else ["cache"])
    if done.code:
        return f"the next command: exit {done.code}: {done.said[-700:]}"
    return first(
        _lost(before, folder),
        disagreement(folder / case.run) if case.run else "",
        "" if case.next else _differs(case, folder),
        "" if not case.out or _is_whole(case, folder) else f"{case.out} is not whole",
        wrongly_pushed(folder) if case.words == PUSH else "",
    )


def _is_whole(case: Case, folder: Path) -> bool:
    if case.out is None:
        return True
    return _names(folder / case.out) == _undisturbed(case)[2]


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _differs(case: Case, folder: Path) -> str:
    """Say whether a folder is not that of a command that nobody disturbed."""
    if case.run is None:
        return ""
    for name, content in _undisturbed(case)[1].items():
        if _content(folder / case.run, name) != content:
            return f"{name} is not that of an undisturbed command"
    return ""


def _content(run: Path, name: str) -> Any:
    if name.endswith(".jsonl"):
        # A checkpoint is measured by every merge; the name of a merge is also of where
        # models lie, which for those of a demo is another folder each time.
        found = [line for line in lines(run / name) if line["role"] != "checkpoint"]
        return [{**line, "merge": ""} for line in found]
    return json.loads((run / name).read_text())


def _lines(folder: Path) -> dict[str, list[Any]]:
    logs = folder.rglob("evaluations*.jsonl")
    return {str(p.relative_to(folder)): lines(p) for p in logs if "early" not in p.name}


def _lost(before: dict[str, list[Any]], folder: Path) -> str:
    after = {name: folder / name for name in {**before, **_lines(folder)}}
    return first(*(lost_or_doubled(before.get(n, []), p) for n, p in after.items()))


def _operations(case: Case) -> int:
    return _undisturbed(case)[0]


@functools.cache
def _undisturbed(case: Case) -> tuple[int, dict[str, Any], set[str]]:
    """Count what a command does to files, and keep what it makes."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        folder = copied(Path(name), *case.needs)
        count = folder / "count"
        done = run_in(folder, case.words, _limits(lambda: _count_into(count)))
        assert done.code == 0, done.said
        made = {}
        if case.run is not None:
            for file in ("front.json", "evaluations.jsonl", ".state/surrogates.json"):
                made[file] = _content(folder / case.run, file)
        names = _names(folder / case.out) if case.out else set()
        return len(count.read_text()), made, names


def _limits(before: Callable[[], None]) -> Limits:
    return Limits(seconds=300, before=before)


def _count_into(file: Path) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _at_each_call(lambda: os.write(handle, b"x"))


def _kill_at(number: int) -> None:
    done = [0]
    owner = os.getpid()

    def count() -> None:
        done[0] += 1
        if done[0] == number and os.getpid() == owner:
            os.kill(owner, signal.SIGKILL)

    _at_each_call(count)


def _at_each_call(heard: Callable[[], object]) -> None:
    """Call something before each call that changes a folder."""

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def before(*arguments: Any, **named: Any) -> Any:
            heard()
            return call(*arguments, **named)

        return before

    for owner, names in CALLS.items():
        for name in names:
            setattr(owner, name, wrapped(getattr(owner, name)))
