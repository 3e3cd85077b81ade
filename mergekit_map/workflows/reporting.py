"""Progress for callers in Python who bring no callbacks."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from transformers.utils import logging as logging_of_models

from mergekit_map.search.callbacks import Callback, CallbackList
from mergekit_map.utils.progress import Progress, notifying
from mergekit_map.utils.text import redact

_logger = logging.getLogger(__name__)
_WIDTH = 78


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


@contextmanager
def reporting(callbacks: Sequence[Callback] | None) -> Iterator[CallbackList]:
    """Send progress to callbacks, by default a line; other bars are off beside it."""
    given = [ProgressLine()] if callbacks is None else callbacks
    lines = [one for one in given if isinstance(one, ProgressLine)]
    bars = bool(lines) and logging_of_models.is_progress_bar_enabled()
    if bars:
        logging_of_models.disable_progress_bar()  # type: ignore[no-untyped-call]
    events = CallbackList(given)
    try:
        with notifying(events):
            yield events
    except BaseException as error:
        stopped = error  # a name that outlives this clause
        events.tell(lambda one: one.on_stop(stopped))
        raise
    finally:
        for line in lines:
            line.clear()
        if bars:
            logging_of_models.enable_progress_bar()  # type: ignore[no-untyped-call]
