"""What the command line shows while it works: how far it is, on standard error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from mergekit_map.words import printable

if TYPE_CHECKING:
    from mergekit_map.study.study import Progress as Measuring

_SECONDS_BETWEEN_LINES = 10  # where there is no terminal to draw a bar in


class TerminalReporter:
    """Shows on standard error how far a command is; a context."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._row: TaskID | None = None
        self._last_line = -float("inf")
        self._started = time.monotonic()
        self._done_before = 0  # what an earlier search had measured already

    def __enter__(self) -> TerminalReporter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def progress(self, progress: Measuring) -> None:
        """Show which merge is being measured on which task."""
        weights = " ".join(f"{v:.3f}" for v in progress.coefficients.values())
        text = f"{progress.role} ({weights}) {progress.task}"
        self._show(text, progress.done, progress.total)

    def stage(self, name: str, fraction: float) -> None:
        """Show how far a stage of the demo's training is."""
        self._show(name, round(100 * fraction), 100)

    def notice(self, text: str) -> None:
        """Show a line that stays."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def _show(self, text: str, done: int, total: int) -> None:
        if self._row is None or done < self._done_before:
            self._row = self._row or self._bar.add_task(text, total=total)
            self._started, self._done_before = time.monotonic(), done
        self._bar.update(self._row, description=text, completed=done, total=total)
        now = time.monotonic()
        if self._bar.disable and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            line = f"{done}/{total} {text}, {now - self._started:.0f} s"
            if done > self._done_before:
                pace = (now - self._started) / (done - self._done_before)
                line += f", about {pace * (total - done):.0f} s left"
            self._console.print(Text(line), soft_wrap=True)
            self._last_line = now
