"""What tells a caller in Python how far a step is who brings no reporter of his own."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from transformers.utils import logging as logging_of_models

from mergekit_map.study.study import Progress, Reporter
from mergekit_map.words import masked

_logger = logging.getLogger(__name__)
_WIDTH = 78
_SECONDS_BETWEEN = 0.2


class ProgressLine:
    """One line on standard error that is written over; in a notebook, too.

    Where it goes to a file it is left out. Notices are warnings of the log.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        # A notebook's is no terminal, and obeys a carriage return like one.
        notebook = type(self._stream).__module__.startswith("ipykernel")
        self._seen = notebook or self._stream.isatty()
        self._started = time.monotonic()
        self._last = -_SECONDS_BETWEEN

    def progress(self, progress: Progress) -> None:
        """Show which merge is being measured on which task."""
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN:
            return
        self._last, seconds = now, round(now - self._started)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        count = f"{progress.done}/{progress.total} {clock}"
        self._write(f"{count} {progress.role}, {progress.task}")

    def notice(self, text: str) -> None:
        """Log something the user should know."""
        self.clear()
        _logger.warning("%s", masked(text))

    def clear(self) -> None:
        """Take the line away."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._seen:
            self._stream.write(f"\r{text[:_WIDTH]:<{_WIDTH}}\r")
            self._stream.flush()


@contextmanager
def reporting(reporter: Reporter | None) -> Iterator[Reporter]:
    """Give the reporter, or a line that is there until the end, and no other bars."""
    if reporter is not None:
        yield reporter
        return
    line, bars = ProgressLine(), logging_of_models.is_progress_bar_enabled()
    logging_of_models.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield line
    finally:
        line.clear()
        if bars:
            logging_of_models.enable_progress_bar()  # type: ignore[no-untyped-call]
