"""Progress of long work: measurements, stages, finished steps, and notices.

Work reports here and need not know whether there is a listener. There is one only
inside of ``notifying``, for the same thread. Between two steps a search can be
interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from mergekit_map.utils.shutdown import check_interrupt


@dataclass(frozen=True)
class Progress:
    """The progress of a search; ``task`` is about to be measured."""

    done: int
    total: int
    coefficients: Mapping[str, float]
    task: str
    role: str


class Listener:
    """A receiver of progress reports; subclasses override what they need."""

    def on_progress(self, progress: Progress) -> None:
        """Receive that a measurement starts; ``done`` of ``total`` are finished."""

    def on_stage(self, text: str, seconds: float | None) -> None:
        """Receive the start of a long stage; its end comes with the seconds it took."""

    def on_step(self, done: int, total: int) -> None:
        """Receive the progress of a measurement, in requests, blocks or documents."""

    def on_notice(self, text: str) -> None:
        """Receive a message for the user."""


# The listener, and the notices that it received.
_LISTENER: ContextVar[tuple[Listener, set[str]]] = ContextVar(
    "listener", default=(Listener(), set())
)


@contextmanager
def notifying(listener: Listener) -> Iterator[None]:
    """Send all reports inside of the context to a listener."""
    before = _LISTENER.set((listener, set()))
    try:
        yield
    finally:
        _LISTENER.reset(before)


def measuring(progress: Progress) -> None:
    """Report that a measurement starts."""
    _LISTENER.get()[0].on_progress(progress)


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Report the start and the end of a long stage."""
    listener, _ = _LISTENER.get()
    started = time.perf_counter()
    listener.on_stage(text, None)
    try:
        yield
    finally:
        listener.on_stage(text, time.perf_counter() - started)


def warn(text: str) -> None:
    """Send a notice to the user, once."""
    listener, said = _LISTENER.get()
    if text not in said:
        said.add(text)
        listener.on_notice(text)


def step(done: int, total: int) -> None:
    """Report finished measurements, or raise Interrupted after a signal."""
    check_interrupt()
    _LISTENER.get()[0].on_step(done, total)
