"""Ctrl-C, SIGTERM and a closed terminal: how the program ends.

The program handles these signals. A notebook does not, and keeps Python's own
``KeyboardInterrupt``. A handler never raises an exception into running code. Inside of
``deferred``, where workers must be ended and results shown, the first signal sets a
flag, and ``check_interrupt`` raises ``Interrupted`` at the next safe point. Elsewhere,
and at a second signal, the process ends at once: result files are complete at any time,
and temporary ones are removed.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

# A launcher such as ``uv run`` passes on the Ctrl-C that the terminal sent as well.
_SAME_SIGNAL = 0.5  # seconds
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

at_end: list[Callable[[], object]] = []  # called before a signal ends the process


class _State:
    process = 0  # that handles signals; its children do not
    deferred = False
    number = 0  # of the signal that waits
    received = 0.0  # when it came


class Interrupted(KeyboardInterrupt):
    """A signal asked the program to end, at a point where it can."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def check_interrupt() -> None:
    """Raise Interrupted if a signal waits; long work calls it at safe points."""
    if _State.number:
        raise Interrupted(_State.number)


@contextmanager
def deferred() -> Iterator[None]:
    """Defer a signal to the next safe point, or to the end of the block."""
    before, _State.deferred = _State.deferred, True
    try:
        yield
        check_interrupt()
    finally:
        _State.deferred, _State.number = before, 0


def handle_signals() -> None:
    """Install the program's signal handlers in this process."""
    _State.process = os.getpid()
    for number in _SIGNALS:
        # ``nohup`` and background jobs of a script ignore some of them.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


def ignore_signals() -> None:
    """Ignore the signals that this process handles: all is done."""
    for number in _SIGNALS if os.getpid() == _State.process else ():
        signal.signal(number, signal.SIG_IGN)


def stopped_by(error: BaseException) -> tuple[str, int]:
    """Return ``stopped by SIGTERM``, for example, and the exit code of a shell."""
    number = getattr(error, "number", signal.SIGINT)
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    return f"stopped{by}", 128 + int(number)


def _handle(number: int, _: object) -> None:
    if os.getpid() != _State.process:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    elif not _State.deferred:
        _end(number)
    elif not _State.number:
        _State.number, _State.received = number, time.monotonic()
        _say("stopping; press Ctrl-C again to end at once")
    elif time.monotonic() - _State.received > _SAME_SIGNAL:
        _end(number)


def _end(number: int) -> NoReturn:
    try:
        typed = shlex.join(["mergekit-map", *sys.argv[1:]])
        stopped, _ = stopped_by(Interrupted(number))
        _say(f"{stopped}; to go on, type it again: {typed}")
        for action in at_end:
            action()
    finally:
        os._exit(128 + number)


def _say(text: str) -> None:
    shown = "\x1b[?25h" if os.isatty(2) else ""  # the cursor, which a display may hide
    with suppress(OSError):  # nobody reads it
        os.write(2, os.fsencode(f"{shown}\n{text}\n"))
