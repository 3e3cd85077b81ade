"""What tells a caller in Python how far a step is who brings no reporter of his own."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from mergekit_map.study.study import Progress, Reporter

_logger = logging.getLogger(__name__)
_WIDTH = 78


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

    def progress(self, progress: Progress) -> None:
        """Show which merge is being measured on which task."""
        seconds = round(time.monotonic() - self._started)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        count = f"{progress.done}/{progress.total} {clock}"
        self._write(f"{count} {progress.role}, {progress.task}")

    def notice(self, text: str) -> None:
        """Log something the user should know."""
        self.clear()
        _logger.warning("%s", text)

    def clear(self) -> None:
        """Take the line away."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._seen:
            self._stream.write(f"\r{text[:_WIDTH]:<{_WIDTH}}\r")
            self._stream.flush()


@contextmanager
def reporting(reporter: Reporter | None) -> Iterator[Reporter]:
    """Give the reporter, or a line that is there until the end."""
    if reporter is not None:
        yield reporter
        return
    line = ProgressLine()
    try:
        yield line
    finally:
        line.clear()
