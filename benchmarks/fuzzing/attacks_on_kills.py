"""Commands that are killed or interrupted, and workers that are killed.

By ``kill -9`` at what they do to files or to the Hub, and by Ctrl-C and SIGTERM at
random moments. However a command ends, the next one finds files that agree, every
measurement once, and nothing that is nobody's; and it ends as one that nobody
disturbed. An interrupted one leaves no traceback, no torn line and no temporary file.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from random import Random

from attack import Attack, Limits
from small_search import (
    PUSH,
    SECONDS,
    Case,
    at_each_call,
    copied,
    goes_on,
    logs,
    run_in,
    undisturbed,
)

OF_RUN = ("run",)
WORKERS = "search --workers 2"
TRACES = ("Traceback", "Exception ignored", "KeyboardInterrupt", "Aborted")
# Each command, and how often it is killed.
CASES = {
    "search": (Case(("search", "config.yml", "new"), run="new"), 16),
    "search to disk": (Case(("search", "disk.yml", "new"), run="new"), 8),
    "search again": (Case(("search", "config.yml", "run"), OF_RUN), 8),
    "run": (Case(("run", "config.yml", "out"), run="out.run", out="out"), 8),
    "select": (Case(("select", "run", "--index", "1"), OF_RUN), 14),
    "select, then report": (
        Case(("select", "run", "--index", "1"), OF_RUN, next=("report", "run")),
        12,
    ),
    "select by preference, then merge": (
        Case(
            ("select", "run", "--prefer", "one=3,two=1"),
            OF_RUN,
            next=("merge", "run", "out"),
        ),
        10,
    ),
    "merge": (Case(("merge", "run", "out"), OF_RUN, out="out"), 14),
    "merge of another point": (
        Case(("merge", "run", "out", "--index", "2"), OF_RUN, out="out"),
        8,
    ),
    "report": (Case(("report", "run"), OF_RUN), 6),
    "report elsewhere": (Case(("report", "run", "--out", "page.html"), OF_RUN), 4),
    "cache --remove": (Case(("cache", "--remove", "all"), run=None), 6),
    "cache --limit": (Case(("cache", "--limit", "1GB"), run=None), 2),
    "init": (
        Case(
            ("init", "new.yml", "--base", "b", "--model", "a", "--task", "gsm8k"),
            run=None,
        ),
        2,
    ),
    "compare": (
        Case(
            ("compare", "run", "--opponents=random", "--budget=2", "--preferences=1"),
            OF_RUN,
        ),
        4,
    ),
    WORKERS: (Case(("search", "config.yml", "new", "--workers", "2"), run="new"), 3),
    "push": (Case(PUSH, ("run", "merged"), run=None), 20),
    "demo": (Case(("demo", "--out", "demo"), run="demo/run", out="demo/merged"), 14),
}
INTERRUPTED = {"search": 40, "search to disk": 8, "run": 8, "merge": 8, WORKERS: 8}


def attacks(seed: int) -> Iterator[Attack]:
    """Disturb every command at moments spread over all that it does."""
    for name, (case, kills) in CASES.items():
        for part in range(1, kills + 1):
            title = f"{name}: kill -9 at {part}/{kills} of its file operations"
            yield Attack(title, functools.partial(_killed, case, part / kills))
        rng = Random(f"{seed} {name}")
        for part in range(INTERRUPTED.get(name, 0)):
            number = signal.SIGTERM if part % 4 == 3 else signal.SIGINT
            at = rng.uniform(0.05, 1)
            title = f"{name}: {number.name} at {at:.3f} of its time"
            yield Attack(title, functools.partial(_interrupted, case, number, at))
    for part in range(1, 7):
        title = f"{WORKERS}: kill -9 of a worker at {part}/8 of its time"
        yield Attack(title, functools.partial(_without_worker, part / 8))


def drawn(attacks: Sequence[Attack], rng: Random) -> Iterator[Attack]:
    """Draw attacks on all commands in turn."""
    mixed = rng.sample(attacks, len(attacks))
    by_case = [
        [attack for attack in mixed if attack.name.startswith(f"{name}:")]
        for name in CASES
    ]
    yield from (one for row in zip_longest(*by_case) for one in row if one is not None)


def _killed(case: Case, at: float, folder: Path) -> str:
    copied(folder, *case.needs)
    number = max(1, round(at * undisturbed(case).calls))
    before = logs(folder)
    limits = Limits(SECONDS, before=functools.partial(_kill_at, number))
    died = run_in(folder, case.words, limits)
    if died.code not in (-signal.SIGKILL, 0):
        return f"it was to be killed at operation {number}: {died.code} {died.said}"
    return goes_on(case, folder, before)


def _kill_at(number: int) -> None:
    done = [0]
    owner = os.getpid()

    def count() -> None:
        done[0] += 1
        if done[0] == number and os.getpid() == owner:
            os.kill(owner, signal.SIGKILL)

    at_each_call(count)


def _interrupted(case: Case, number: signal.Signals, at: float, folder: Path) -> str:
    copied(folder, *case.needs)
    before = logs(folder)
    limits = Limits(
        SECONDS,
        after=at * undisturbed(case).seconds,
        then=lambda process: os.kill(process, number),
    )
    ended = run_in(folder, case.words, limits)
    torn = [
        path
        for path in folder.rglob("evaluations.jsonl")
        if path.read_bytes()[-1:] not in (b"", b"\n")
    ]
    left = [*torn, *folder.rglob("*.partial"), *folder.glob("tmp/mergekit-map-*")]
    traces = [word for word in TRACES if word in ended.said]
    if ended.code not in (128 + number, 0) or left or traces:
        return f"exit {ended.code}, {left} left, {traces}: {ended.said[-700:]}"
    return goes_on(case, folder, before)


def _without_worker(at: float, folder: Path) -> str:
    """Kill a worker, without which the same search goes on."""
    case, _ = CASES[WORKERS]
    copied(folder)
    after = at * undisturbed(case).seconds
    done = run_in(folder, case.words, Limits(SECONDS, after=after, then=_kill_worker))
    if done.code:
        return f"exit {done.code}: {done.said[-700:]}"
    return goes_on(case, folder, {})


def _kill_worker(driver: int) -> None:
    """Kill one of the youngest processes that a search started, if it has some."""
    started = [process for child in _children(driver) for process in _children(child)]
    for process in started[-1:]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _children(process: int) -> list[int]:
    with suppress(OSError):
        path = Path(f"/proc/{process}/task/{process}/children")
        return [int(word) for word in path.read_text().split()]
    return []
