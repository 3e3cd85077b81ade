"""Progress of a command on standard error."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from mergekit_map.cli.options import output_options
from mergekit_map.results.log import Evaluation
from mergekit_map.utils.progress import Progress as Searched
from mergekit_map.utils.text import printable
from mergekit_map.workflows.callbacks import Callback, Started

_SECONDS_BETWEEN_LINES = 10  # where there is no terminal to draw a bar in


class _Stderr(Console):
    def on_broken_pipe(self) -> None:
        """Go on without a reader: Ctrl-C ends ``tee`` before it ends a search."""
        self.quiet = True
        with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())  # others write there, too


class TerminalReporter(Callback):
    """A context that shows progress on standard error."""

    def __init__(self) -> None:
        self._output = output_options()
        self._console = _Stderr(stderr=True, quiet=self._output.quiet)
        column = Column(no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            BarColumn(20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", "dim", markup=False, table_column=column),
            console=self._console,
            speed_estimate_period=float("inf"),  # a merge may take minutes
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not self._console.is_terminal or self._output.quiet,
        )
        self._progress.add_task("", total=None, visible=False)
        (self._task,) = self._progress.tasks  # measurements, of the most there will be
        self._last_line = -float("inf")
        self._searching = False
        self._what = ""
        self._values: dict[str, str] = {}  # the last one of each task

    def __enter__(self) -> TerminalReporter:
        self._progress.start()  # it draws nothing where there is no terminal
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_start(self, started: Started) -> None:
        """Announce how much will be measured at most."""
        self._searching = True
        total = started.total
        self.on_notice(
            f"searching: at most {total} measurements, each of a merge on a task"
        )

    def on_progress(self, progress: Searched) -> None:
        """Show which merge is being measured on which task."""
        weights = " ".join(f"{n}={v:.3f}" for n, v in progress.coefficients.items())
        self._what = f"merge {weights}, task {progress.task}"
        self._show(done=progress.done, total=progress.total)

    def on_stage(self, text: str, seconds: float | None) -> None:
        """Show a stage once; with --verbose, with its time."""
        if seconds is not None:
            self._say(f"{text}: {seconds:.1f} s", always=False)
            return
        self._what = f"{text} ..."
        measuring = bool(self._values or self._task.completed)
        self._say(self._what, always=not measuring)
        if not measuring:
            self._last_line = time.monotonic()  # not a second time
        self._show()

    def on_step(self, done: int, total: int) -> None:
        """Show how far a measurement is."""
        self._show(f", batch {done} of {total}" if total else "")

    def on_measured(self, evaluation: Evaluation) -> None:
        """Keep the last value of each task, and show it where more is asked for."""
        e = evaluation
        self._progress.advance(self._task.id)
        self._values[e.task] = "failed" if e.failed else f"{e.value:.4g}"
        weights = " ".join(f"{n}={v:.4g}" for n, v in e.coefficients.items())
        value = e.error or str(e.reading)
        text = f"{e.role} {weights}: {e.task} {value} in {e.seconds:.1f} s"
        self._say(text, always=False)

    def on_stop(self, error: BaseException) -> None:
        """Show how much of a search is kept."""
        task = self._task
        if self._searching and task.completed and isinstance(error, KeyboardInterrupt):
            self.on_notice(
                f"{task.completed:.0f} of at most {task.total} measurements are kept"
            )

    def on_notice(self, text: str) -> None:
        """Show a line that stays."""
        self._say(text, always=True)

    def _say(self, text: str, *, always: bool) -> None:
        self._output.write(text)
        if always or self._output.verbose:
            self._console.print(Text(printable(text)), soft_wrap=True)

    def _show(
        self, steps: str = "", done: int | None = None, total: int | None = None
    ) -> None:
        """Draw what is done; without a terminal, print a line from time to time."""
        task, now = self._task, time.monotonic()
        values = "  ".join(f"{name} {value}" for name, value in self._values.items())
        text = printable(f"{self._what}{steps}\n{values}".rstrip())
        counted = total is not None or task.total is not None
        self._progress.update(
            task.id, completed=done, total=total, description=text, visible=counted
        )
        if not self._progress.disable or now - self._last_line < _SECONDS_BETWEEN_LINES:
            return
        self._last_line, counts = now, ""
        if task.total:
            left = timedelta(seconds=task.time_remaining or 0)
            about = f", about {left} left" if left else ""
            counts = f"{task.completed:.0f} of {task.total:.0f} measurements{about}: "
        line = printable(f"{counts}{self._what}{steps}")
        self._console.print(Text(line), soft_wrap=True)
