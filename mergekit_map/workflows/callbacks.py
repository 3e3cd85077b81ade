"""Callbacks on the progress of a search; by default a line on standard error."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from mergekit_map.errors import ConfigError, in_words
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation
from mergekit_map.types import Metric
from mergekit_map.utils.progress import Listener, Progress, notifying
from mergekit_map.utils.text import redact

_logger = logging.getLogger(__name__)
_WIDTH = 78
_RUNNING = threading.RLock()  # held by the thread that merges


@dataclass(frozen=True)
class Started:
    """A search that starts or resumes."""

    run: Path  # its folder
    config: Mapping[str, Any]  # the configuration, as it was read
    coefficients: Mapping[str, tuple[float, float]]  # what is searched, between bounds
    tasks: Mapping[str, Metric]  # what is measured
    total: int  # measurements, of a task at a merge, at most
    known: Sequence[Evaluation]  # what was measured before


class Callback(Listener):
    """A listener to the events of a search; subclasses override what they need.

    Callbacks run in the thread of the search, which waits for them. The search warns
    of a callback that fails, drops it and continues.
    """

    def on_start(self, started: Started) -> None:
        """Receive what is searched, before anything is measured."""

    def on_measured(self, evaluation: Evaluation) -> None:
        """Receive a measurement, once it is in the log."""

    def on_finish(self, front: Front) -> None:
        """Receive the result, once all of it is in the run folder."""

    def on_stop(self, error: BaseException) -> None:
        """Receive that the search stops early: by Ctrl-C, or by an error."""


class ProgressLine(Callback):
    """A progress line on standard error, in a notebook, too.

    A file as standard error gets no line. Notices are warnings of ``logging``.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr
        # A notebook's is no terminal, and obeys a carriage return like one.
        notebook = type(self._stream).__module__.startswith("ipykernel")
        self._seen = notebook or self._stream.isatty()
        self._started = time.monotonic()

    def on_progress(self, progress: Progress) -> None:
        """Show which merge is being measured on which task."""
        clock = timedelta(seconds=round(time.monotonic() - self._started))
        count = f"{progress.done}/{progress.total} {clock}"
        self._write(f"{count} {progress.role}, {progress.task}")

    def on_notice(self, text: str) -> None:
        """Log a notice for the user."""
        self.clear()
        _logger.warning("%s", redact(text))

    def clear(self) -> None:
        """Remove the line."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._seen:
            self._stream.write(f"\r{text[:_WIDTH]:<{_WIDTH}}\r")
            self._stream.flush()


class CallbackList(Listener):
    """Forwards the events of a search to callbacks, and counts its measurements."""

    def __init__(self, callbacks: Iterable[Callback]):
        self._callbacks = list(callbacks)
        self._done: set[object] = set()
        self._total: int | None = None

    def start(self, started: Started) -> None:
        """Announce a search."""
        self._done = set(map(_counted, started.known))
        self._total = max(started.total, len(self._done))
        whole = replace(started, total=self._total)
        self.tell(lambda one: one.on_start(whole))

    def on_progress(self, progress: Progress) -> None:
        """Forward a measurement that starts, with the count of the search."""
        if self._total is not None:
            done = len(self._done)
            progress = replace(progress, done=done, total=max(self._total, done + 1))
        self.tell(lambda one: one.on_progress(progress))

    def on_measured(self, evaluation: Evaluation) -> None:
        """Forward a measurement."""
        self._done.add(_counted(evaluation))
        self.tell(lambda one: one.on_measured(evaluation))

    def on_notice(self, text: str) -> None:
        """Forward a message for the user."""
        self.tell(lambda one: one.on_notice(text))

    def on_stage(self, text: str, seconds: float | None) -> None:
        """Forward the start or end of a stage."""
        self.tell(lambda one: one.on_stage(text, seconds))

    def on_step(self, done: int, total: int) -> None:
        """Forward the progress of a measurement."""
        self.tell(lambda one: one.on_step(done, total))

    def tell(self, event: Callable[[Callback], None]) -> None:
        """Call a method of each callback; one that fails is left out from then on."""
        for one in list(self._callbacks):
            try:
                event(one)
            except Exception as error:  # noqa: BLE001 - of others; hours are at stake
                self._callbacks = [c for c in self._callbacks if c is not one]
                _logger.warning(
                    "the callback %s and is left out from now on; the search goes on",
                    redact(f"{type(one).__name__} failed ({in_words(error)})"),
                )


def _counted(e: Evaluation) -> object:
    """Return the key that a measurement counts by, whatever part of the documents."""
    return e.merge, e.key, e.role == "holdout"


@contextmanager
def reporting(callbacks: Sequence[Callback] | None) -> Iterator[CallbackList]:
    """Send progress to callbacks, by default a line; other bars are off beside it."""
    given = [ProgressLine()] if callbacks is None else [*callbacks]
    from transformers.utils import logging as logging_of_models  # not to select

    lines = [one for one in given if isinstance(one, ProgressLine)]
    bars = bool(lines) and logging_of_models.is_progress_bar_enabled()
    if not _RUNNING.acquire(blocking=False):
        raise ConfigError(
            "another thread of this process merges, and would change the random "
            "numbers of this one; start a process for each search"
        )
    if bars:
        logging_of_models.disable_progress_bar()  # type: ignore[no-untyped-call]
    events = CallbackList(given)
    try:
        with notifying(events):
            yield events
    except BaseException as error:
        stopped = error  # a name that outlives this clause
        events.tell(lambda one: one.on_stop(stopped))
        # A notebook keeps the last error, which would keep the models in memory.
        cause: BaseException | None = error
        while cause is not None:
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__cause__
        raise
    finally:
        _RUNNING.release()
        events.tell(lambda one: one.clear() if isinstance(one, ProgressLine) else None)
        if bars:
            logging_of_models.enable_progress_bar()  # type: ignore[no-untyped-call]
