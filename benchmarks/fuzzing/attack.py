"""Attacks on the program: a command in a process of its own, and what it must not do.

A command is forked from the process that asks, which has imported everything, so that
one costs milliseconds; it has limits of time and memory, and no terminal.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import math
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

_MB = 1 << 20


@dataclass(frozen=True)
class Attack:
    """One thing that goes wrong, and whether the program holds.

    ``attempt`` is called with an empty folder, and gives what failed, in words; nothing
    where the program held.
    """

    name: str
    attempt: Callable[[Path], str]


class Impossible(Exception):
    """What an attack needs is not to be had here; with the words that say it."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int  # below zero: killed by this signal
    out: str
    err: str
    seconds: float
    megabytes: float  # beyond those of a command that does nothing

    @property
    def said(self) -> str:
        """Give all that was written."""
        return self.out + self.err


@dataclass(frozen=True)
class Limits:
    """What a command may use."""

    seconds: float = 60
    megabytes: int = 2000  # of address space, beyond what is there
    file_size: int | None = None  # bytes
    user: int | None = None  # whose rights it has
    others: Mapping[str, str] = field(default_factory=dict)  # environment
    before: Callable[[], None] = lambda: None  # called in its process
    anew: bool = False  # in an interpreter that has imported nothing
    after: float = math.inf  # seconds, after which something is done to its process
    then: Callable[[int], object] = lambda _: None


def command(
    words: Sequence[str | Path], folder: Path, limits: Limits = Limits()
) -> Outcome:
    """Run a command of mergekit-map in a folder, as a user would."""
    out, err = folder / ".out", folder / ".err"
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_command([str(word) for word in words], folder, out, err, limits)
    ended, disturbed = None, False
    while ended is None:
        number, status, used = os.wait4(child, os.WNOHANG)
        if number:
            ended = os.waitstatus_to_exitcode(status)
        elif time.monotonic() - began > limits.seconds:
            os.killpg(child, signal.SIGKILL)
            time.sleep(0.005)
        elif not disturbed and time.monotonic() - began > limits.after:
            disturbed = True
            limits.then(child)
        else:
            time.sleep(0.005)
    texts = [path.read_text(errors="replace") for path in (out, err)]
    out.unlink()
    err.unlink()
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Outcome(
        ended,
        *texts,
        seconds=time.monotonic() - began,
        megabytes=max(0, used.ru_maxrss / 1024 - ours),
    )


def refused(outcome: Outcome, *words: str, seconds: float = 20) -> str:
    """Say what is wrong with how a command refused; nothing where it is right.

    It ends with 2, in time, by an error in a sentence that has the given words.
    """
    problems = _harm(outcome, seconds)
    if outcome.code != 2:
        problems.append(f"exit {outcome.code}, not 2")
    # `inspect` counts them: "Errors: 2, warnings: 0; no search can start".
    if not re.search(r"\berrors?: ", outcome.said, re.IGNORECASE):
        problems.append("no error was said")
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    if len(lines) > 30 or any(len(line) > 2000 for line in lines):
        problems.append(f"{len(lines)} lines of {len(outcome.err)} characters")
    problems += [f"{word!r} is not said" for word in words if word not in outcome.said]
    return _report(problems, outcome)


def held(outcome: Outcome, *words: str, seconds: float = 60) -> str:
    """Say what is wrong with a command that may succeed, or refuse with words."""
    if outcome.code == 2:
        return refused(outcome, *words, seconds=seconds)
    problems = _harm(outcome, seconds)
    if outcome.code not in (0, 130):
        problems.append(f"exit {outcome.code}")
    return _report(problems, outcome)


def shown(value: object) -> str:
    """Write a value in the name of an attack."""
    text = ascii(value)
    return text if len(text) < 50 else f"{text[:40]}... ({len(text)})"


def first(*problems: str) -> str:
    """Give the first of several that says something."""
    return next((problem for problem in problems if problem), "")


def warm() -> None:
    """Import what commands import, once, so that those forked have it."""
    import torch

    from mergekit_map.cli.main import main

    torch.set_num_threads(1)
    codecs.lookup("utf-8-sig")  # which another user may not read
    context = click.Context(main)
    for name in main.list_commands(context):
        main.get_command(context, name)
    for name in ("workflows.merge", "workflows.search", "hub.push", "report.page"):
        importlib.import_module(f"mergekit_map.{name}")


def _harm(outcome: Outcome, seconds: float) -> list[str]:
    """List what no command may do, whatever it was given."""
    problems = []
    if outcome.seconds > seconds:
        problems.append(f"it took {outcome.seconds:.0f} s")
    for word in ("Traceback (most recent call last)", "Exception ignored"):
        if word in outcome.said:
            problems.append(word)
    if outcome.megabytes > 1000:
        problems.append(f"{outcome.megabytes:.0f} MB")
    if "\x1b" in outcome.said.replace("\x1b[?25h", ""):
        problems.append("control characters reach the terminal")
    return problems


def _report(problems: Sequence[str], outcome: Outcome) -> str:
    """Join problems, with the end of what was said."""
    if not problems:
        return ""
    return f"{'; '.join(problems)}: {outcome.said.strip()[-600:]}"


def _be_the_command(
    words: list[str], folder: Path, out: Path, err: Path, limits: Limits
) -> None:
    """Run a command in this process, a fork, and never return."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        for path, number in ((os.devnull, 0), (out, 1), (err, 2)):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
            handle = os.open(path, flags, 0o666)
            os.dup2(handle, number)
            os.close(handle)
        sys.stdin = sys.__stdin__ = os.fdopen(0, "r", closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", closefd=False)
        os.environ.update(limits.others)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if limits.anew:
            program = [sys.executable, "-W", "ignore", "-m", "mergekit_map"]
            os.execv(sys.executable, [*program, *words])
        limits.before()
        _limit(limits)
        from mergekit_map.cli.main import main
        from mergekit_map.utils.shutdown import handle_signals

        handle_signals()  # as ``__main__`` does
        try:
            sys.argv = ["mergekit-map", *words]  # signals are as for a program
            main(prog_name="mergekit-map")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):  # the limit on files is on it too
                    stream.flush()
    except BaseException:  # noqa: BLE001 - it is what is looked for
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _limit(limits: Limits) -> None:
    """Take from this process what a command may not use."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + limits.megabytes * _MB
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if limits.file_size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_size,) * 2)
    if limits.user is not None:
        os.setgid(limits.user)
        os.setuid(limits.user)
