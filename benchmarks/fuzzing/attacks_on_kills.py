"""Commands that are killed or interrupted, and workers that are killed.

By ``kill -9`` at what they do to files or to the Hub, and by Ctrl-C and SIGTERM at
random moments. However a command ends, the next one finds files that agree, every
measurement once, and nothing that is nobody's; and it ends as one that nobody
disturbed. An interrupted one leaves no traceback, no torn line and no temporary file.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
from attack import Attack, Impossible, Limits, Outcome, first
from small_search import (
    PUSH,
    SECONDS,
    Case,
    at_each_call,
    copied,
    goes_on,
    logs,
    lost,
    run_in,
    undisturbed,
)

WORKERS, ANEW = "search --workers 2", "search, imports included"
TRACES = ("Traceback", "Exception ignored", "KeyboardInterrupt", "Aborted")
CASES = {
    "search": Case("search config.yml new", run="new", kills=16),
    ANEW: Case("search config.yml new", run="new", anew=True),
    "search to disk": Case("search disk.yml new", run="new", kills=8),
    "search again": Case("search config.yml run", kills=8),
    "run": Case("run config.yml out", run="out.run", out="out", kills=8),
    "select": Case("select run --index 1", kills=14),
    "select, then report": Case("select run --index 1", next="report run", kills=12),
    "select by preference, then merge": Case(
        "select run --prefer greeting=3,code=1", next="merge run out", kills=10
    ),
    "merge": Case("merge run out", out="out", kills=14),
    "report": Case("report run", kills=6),
    "cache --remove": Case("cache --remove all", run=None, kills=6),
    "init": Case("init new.yml --base b --model a --task gsm8k", run=None, kills=2),
    "compare": Case(
        "compare run --opponents=random --budget=2 --preferences=1", kills=4
    ),
    WORKERS: Case("search config.yml new --workers 2", run="new", kills=3),
    "push": Case(PUSH, run=None, kills=20),
    "demo": Case("demo --out demo", run="demo/run", out="demo/merged", kills=14),
}
INTERRUPTED = {"search": 40, "search to disk": 8, "run": 8, "merge": 8, WORKERS: 8}
INTERRUPTED |= {ANEW: 12}
SIGNALS = (signal.SIGINT, signal.SIGINT, signal.SIGINT, signal.SIGTERM)


def attacks(seed: int) -> Iterator[Attack]:
    """Disturb every command at moments spread over all that it does."""
    for name, case in CASES.items():
        for part in range(1, case.kills + 1):
            title = f"{name}: kill -9 at {part}/{case.kills} of its file operations"
            yield Attack(title, functools.partial(_killed, case, part / case.kills))
        rng = Random(f"{seed} {name}")
        for part in range(INTERRUPTED.get(name, 0)):
            number = signal.SIGTERM if part % 4 == 3 else signal.SIGINT
            at = rng.uniform(0.05, 1)
            title = f"{name}: {number.name} at {at:.3f} of its time"
            yield Attack(title, functools.partial(_interrupted, case, [(number, at)]))
    for part in range(4):
        rng = Random(f"{seed} again {part}")
        several = [(rng.choice(SIGNALS), rng.uniform(0.05, 1)) for _ in range(8)]
        title = f"search: {len(several)} signals one after another, {part}"
        attempt = functools.partial(_interrupted, CASES["search"], several)
        yield Attack(title, attempt)
    for part in range(1, 7):
        title = f"{WORKERS}: kill -9 of a worker at {part}/8 of its time"
        yield Attack(title, functools.partial(_without_worker, part / 8))
    for kind, part in itertools.product(("", "ray:"), range(3)):
        title = f"{WORKERS}: kills of workers and drivers by turns, {kind}{part}"
        attempt = functools.partial(_by_turns, kind, Random(f"{seed} {part}"))
        yield Attack(title, attempt)


def _killed(case: Case, at: float, folder: Path) -> str:
    copied(folder, *case.needs)
    number = max(1, round(at * undisturbed(case).calls))
    before = logs(folder)
    limits = Limits(SECONDS, before=functools.partial(_kill_at, number))
    died = run_in(folder, case.command, limits)
    if died.code not in (-signal.SIGKILL, 0):
        return f"it was to be killed at operation {number}: {died.code} {died.said}"
    return goes_on(case, folder, before)


def _kill_at(number: int) -> None:
    done, owner = itertools.count(1), os.getpid()

    def count() -> None:
        if next(done) == number and os.getpid() == owner:
            os.kill(owner, signal.SIGKILL)

    at_each_call(count)


def _interrupted(
    case: Case, moments: Sequence[tuple[signal.Signals, float]], folder: Path
) -> str:
    """Interrupt a command once, or again and again; then let it go on to its end."""
    copied(folder, *case.needs)
    for number, at in moments:
        before = logs(folder)
        limits = Limits(
            SECONDS,
            anew=case.anew,
            after=at * undisturbed(case).seconds,
            then=lambda process, number=number: os.kill(process, number),
        )
        ended = run_in(folder, case.command, limits)
        if problem := first(_ended_badly(ended, number, folder), lost(before, folder)):
            return problem
    return goes_on(case, folder, before)


def _ended_badly(ended: Outcome, number: signal.Signals, folder: Path) -> str:
    if ended.code == -number and "mergekit" not in ended.said:
        return ""  # before the first line of the program, which can handle nothing
    torn = [
        path
        for path in folder.rglob("evaluations.jsonl")
        if path.read_bytes()[-1:] not in (b"", b"\n")
    ]
    left = [*torn, *folder.rglob("*.partial"), *folder.glob("tmp/mergekit-map-*")]
    traces = [word for word in TRACES if word in ended.said]
    if ended.code not in (128 + number, 0) or left or traces:
        return f"exit {ended.code}, {left} left, {traces}: {ended.said[-700:]}"
    return ""


def _without_worker(at: float, folder: Path) -> str:
    """Kill a worker, without which the same search goes on."""
    case = CASES[WORKERS]
    copied(folder)
    after = at * undisturbed(case).seconds
    limits = Limits(SECONDS, after=after, then=lambda driver: _kill(_workers(driver)))
    done = run_in(folder, case.command, limits)
    if done.code:
        return f"exit {done.code}: {done.said[-700:]}"
    return goes_on(case, folder, {})


def _by_turns(kind: str, rng: Random, folder: Path) -> str:
    """Kill workers and drivers, and go on with another number of workers each time."""
    if kind and importlib.util.find_spec("ray") is None:
        raise Impossible("Ray is not installed")
    case = CASES[WORKERS]
    copied(folder)
    for _ in range(5):
        before, workers = logs(folder), []

        def kill(driver: int, some: list[psutil.Process] = workers) -> None:
            some += _workers(driver, "ray::Actor" if kind else "")
            _kill(some if rng.random() < 0.5 else [psutil.Process(driver)])

        words = f"{case.command[:-1]}{kind}{rng.choice((1, 2, 3))}"
        after = rng.uniform(0.05, 1) * undisturbed(case).seconds
        # Ray maps memory that it does not use.
        limits = Limits(SECONDS, 1 << 20 if kind else 2000, after=after, then=kill)
        ended = run_in(folder, words, limits)
        if ended.code not in (0, -signal.SIGKILL):
            return f"exit {ended.code}: {ended.said[-700:]}"
        if problem := first(lost(before, folder), _living(workers)):
            return problem
    return goes_on(case, folder, before)


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kill the youngest of some processes, if there is one."""
    for process in processes[-1:]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _living(workers: Sequence[psutil.Process]) -> str:
    """Wait for the end of those whose driver has ended."""
    # Ray looks for a driver now and then.
    _, alive = psutil.wait_procs(workers, timeout=120)
    return f"{alive} live on without their driver" if alive else ""


def _workers(driver: int, name: str = "") -> list[psutil.Process]:
    """List the processes that those started which a search started."""
    with suppress(psutil.Error):  # one has just ended
        children = psutil.Process(driver).children()
        started = [process for child in children for process in child.children()]
        return [p for p in started if " ".join(p.cmdline()).startswith(name)]
    return []
