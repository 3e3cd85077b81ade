"""Ending early, as somebody or something asks by a signal: at once, with a sentence."""

from __future__ import annotations

import _thread
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_LATER = 0.01  # seconds, until whatever could not be interrupted is over
_ONE = 0.3  # seconds, in which whoever is impatient asks once

_heard = [-math.inf]  # when the last signal was


class Terminated(KeyboardInterrupt):
    """The program was asked to end by a signal, as a scheduler does it."""

    number = signal.SIGTERM


class StopWords:
    """What is to be said of what was stopped: the argument of its exception."""

    def __init__(self, text: str, *, aside: bool) -> None:
        self.text, self.aside = text, aside  # aside: on standard error


class HungUp(Terminated):
    """The terminal is gone."""

    number = getattr(signal, "SIGHUP", signal.SIGTERM)


def exit_code(stop: BaseException) -> int:
    """Give what shells expect of a program that was stopped so."""
    number = stop.number if isinstance(stop, Terminated) else signal.SIGINT
    return 128 + number


def stopped_by(stop: BaseException) -> str:
    """Say what stopped it: ``stopped``, or ``stopped by SIGTERM``."""
    by = f" by {stop.number.name}" if isinstance(stop, Terminated) else ""
    return f"stopped{by}"


@contextmanager
def stoppable(*, for_good: bool = False) -> Iterator[None]:
    """Turn the signals that end a program into a KeyboardInterrupt, meanwhile.

    What Python cannot raise where the signal came, as in a destructor, is raised a
    little later. Afterwards signals do what they did before; ``for_good`` nothing, as
    what there was to do is done.
    """
    before: dict[signal.Signals, Any] = {}
    hooks = sys.unraisablehook, sys.excepthook
    try:
        with suppress(ValueError):  # of a thread that gets no signals
            for kind in (Terminated, HungUp):
                # Who started this may want it to go on without a terminal.
                if signal.getsignal(kind.number) is signal.SIG_DFL:
                    before[kind.number] = signal.signal(kind.number, _raiser(kind))
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                handler = _raiser(KeyboardInterrupt)
                before[signal.SIGINT] = signal.signal(signal.SIGINT, handler)
        sys.unraisablehook, sys.excepthook = _raise_later, _without_stops
        yield
    finally:
        sys.unraisablehook, sys.excepthook = hooks
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if for_good else handler)


def hear_no_more() -> None:
    """Let nothing stop what is said of having been stopped."""
    with suppress(ValueError):  # of a thread that gets no signals
        for number in (signal.SIGINT, Terminated.number, HungUp.number):
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """End at Ctrl-C without a traceback, while nothing is begun."""
    try:
        before = signal.signal(signal.SIGINT, _stop)
    except ValueError:  # of a thread that gets no signals
        yield
        return
    yield
    signal.signal(signal.SIGINT, before)


def _stop(number: int, _: object) -> None:
    with suppress(OSError):
        os.write(2, b"\nstopped before anything was done\n")
    os._exit(128 + number)


def _raiser(kind: type[KeyboardInterrupt]) -> Any:
    def handle(*_: object) -> None:
        now = time.monotonic()
        if now - _heard[0] >= _ONE:
            _heard[0] = now
            raise kind

    return handle


def _without_stops(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Show an error; none of a stop, as compiled code does that cannot raise it."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def _raise_later(unraisable: Any) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        number = getattr(unraisable.exc_type, "number", signal.SIGINT)
        _heard[0] = -math.inf
        import threading  # Ctrl-C is heard only once this module is imported

        again = threading.Timer(_LATER, _thread.interrupt_main, [number])
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)
