"""Signs of life of long work: its stage, how many steps are done, what was noticed.

Whoever works says so here and need not know whether anybody listens. Nobody does
unless they are named for the time of a ``with``; inside, it is as in the thread.
Between two steps a search can be interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol
from weakref import WeakKeyDictionary

from mergekit_map.utils.shutdown import check_interrupt


class Listener(Protocol):
    """Whoever wants to hear how long work goes."""

    def staged(self, text: str, seconds: float | None) -> None:
        """Hear that a stage begins, or, with the seconds it took, that it is over."""
        ...

    def stepped(self, done: int, total: int) -> None:
        """Hear how much of what is being measured is done."""
        ...

    def notice(self, text: str) -> None:
        """Hear of something that the user should know."""
        ...


_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)
_SAID: WeakKeyDictionary[Listener, set[str]] = WeakKeyDictionary()


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell a listener of all that goes on inside."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Say that something takes long inside, what it is, and when it is over."""
    listener = _LISTENER.get()
    if listener is None:
        yield
        return
    started = time.perf_counter()
    listener.staged(text, None)
    try:
        yield
    finally:
        listener.staged(text, time.perf_counter() - started)


def remark(text: str) -> None:
    """Say what the user should know, which is said once."""
    listener = _LISTENER.get()
    if listener is None:
        return
    said = _SAID.setdefault(listener, set())
    if text not in said:
        said.add(text)
        listener.notice(text)


def step(done: int, total: int) -> None:
    """Report how much of what is being measured is done.

    Raises:
        Interrupted: a signal came, and something is left to do.
    """
    if done < total:  # what is measured to its end is kept
        check_interrupt()
    listener = _LISTENER.get()
    if listener is not None:
        listener.stepped(done, total)
