"""Progress of a command on standard error."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mergekit_map.cli.main import command_line
from mergekit_map.cli.output import output_options
from mergekit_map.results.log import Evaluation
from mergekit_map.search.callbacks import Callback, Started
from mergekit_map.search.study import Progress
from mergekit_map.utils.text import printable

_SECONDS_BETWEEN_LINES = 10  # where there is no terminal to draw a bar in
_BAR = 20  # characters


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
        self._is_drawn = self._console.is_terminal and not self._output.quiet
        self._last_line = -float("inf")
        self._started = self._began = time.monotonic()
        self._before = 0  # measurements that were done when counting began
        self._done = 0  # measurements
        self._total = 0  # the most that there will be
        self._run: Path | None = None  # the folder of a search that has started
        self._what = self._steps = ""
        self._values: dict[str, str] = {}  # the last one of each task

    def __enter__(self) -> TerminalReporter:
        # It draws nothing where there is no terminal.
        self._live = Live(
            get_renderable=self._drawn,
            console=self._console,
            auto_refresh=self._is_drawn,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_start(self, started: Started) -> None:
        """Show how much is measured already."""
        self._run = started.run
        known = [e for e in started.known if e.taken is None]
        if count := len({(e.merge, e.key, e.role == "holdout") for e in known}):
            self.on_notice(f"{count} of at most {started.total} measurements are there")

    def on_progress(self, progress: Progress) -> None:
        """Show which merge is being measured on which task."""
        weights = " ".join(f"{n}={v:.3f}" for n, v in progress.coefficients.items())
        what = f"{progress.role} {weights}: {progress.task}"
        self._count(progress.done, progress.total, what)

    def stage(self, name: str, fraction: float) -> None:
        """Show how far a stage of the demo's training is."""
        if name != self._what:
            self._total = 0  # its time is counted anew
        self._count(round(100 * fraction), 100, name)

    def on_stage(self, text: str, seconds: float | None) -> None:
        """Show a stage once; with --verbose, with its time."""
        if seconds is not None:
            self._say(f"{text}: {seconds:.1f} s", always=False)
            return
        self._what, self._steps = f"{text} ...", ""
        self._say(self._what, always=not self._values)

    def on_step(self, done: int, total: int) -> None:
        """Show how far a measurement is."""
        self._steps = f" {done}/{total}" if total else ""
        self._show_line()

    def on_measured(self, evaluation: Evaluation) -> None:
        """Keep the last value of each task, and show it where more is asked for."""
        e = evaluation
        self._done, self._steps = min(self._done + 1, self._total), ""
        self._values[e.task] = "failed" if e.failed else f"{e.value:.4g}"
        weights = " ".join(f"{n}={v:.4g}" for n, v in e.coefficients.items())
        value = e.error or str(e.reading)
        text = f"{e.role} {weights}: {e.task} {value} in {e.seconds:.1f} s"
        self._say(text, always=False)

    def on_stop(self, error: BaseException) -> None:
        """Show how much of a search is kept."""
        if self._run and self._done and isinstance(error, KeyboardInterrupt):
            self.on_notice(
                f"{self._done} of at most {self._total} measurements are kept; look at "
                f"them with: {command_line('report', self._run)}"
            )

    def on_notice(self, text: str) -> None:
        """Show a line that stays."""
        self._say(text, always=True)

    def _count(self, done: int, total: int, what: str) -> None:
        if not self._total or done < self._before:
            self._began, self._before = time.monotonic(), done
        self._done, self._total, self._what, self._steps = done, total, what, ""
        self._show_line()

    def _say(self, text: str, *, always: bool) -> None:
        self._output.write(text)
        if always or self._output.verbose:
            self._console.print(Text(printable(text)), soft_wrap=True)

    def _show_line(self) -> None:
        """Where there is no terminal, print a line from time to time."""
        now = time.monotonic()
        if self._is_drawn or now - self._last_line < _SECONDS_BETWEEN_LINES:
            return
        line = f"{self._counts()}{self._what}{self._steps}"
        self._console.print(Text(printable(line)), soft_wrap=True)
        self._last_line = now

    def _counts(self) -> str:
        """Return the counts and times; empty where nothing is counted."""
        if not self._total:
            return ""
        text = f"{self._done}/{self._total}, {_time(time.monotonic() - self._started)}"
        if self._done > self._before:
            mean = (time.monotonic() - self._began) / (self._done - self._before)
            text += f", about {_time(mean * (self._total - self._done))} left"
        return f"{text}: "

    def _drawn(self) -> Group:
        """Draw the bar, what is being done, and the last value of each task."""
        bar = Table.grid(padding=(0, 1))
        filled = ProgressBar(self._total, self._done, _BAR, complete_style="green")
        bar.add_row(filled, Text(self._counts().rstrip(": ")))
        values = "  ".join(f"{task} {value}" for task, value in self._values.items())
        lines = [
            Text(printable(line), "dim", no_wrap=True, overflow="ellipsis")
            for line in (f"{self._what}{self._steps}", values)
            if line
        ]
        return Group(bar, *lines) if self._total else Group(*lines)


def _time(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))
