"""Progress of a command on standard error, with the memory in use."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from mergekit_map.cli.output import output_options
from mergekit_map.results.log import Evaluation
from mergekit_map.search.callbacks import Callback, Started
from mergekit_map.search.study import Progress
from mergekit_map.utils.text import bytes_in_words, printable


def memory_in_words() -> str:
    """Return the use of the host's memory and of the accelerator's, in words."""
    words = bytes_in_words(_resident())
    torch = sys.modules.get("torch")  # never imported for this
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        words += f", GPU {bytes_in_words(torch.cuda.memory_allocated())}"
    return words


def _resident() -> int:
    """Return the resident memory; the peak on systems that do not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
    return pages * os.sysconf("SC_PAGE_SIZE")


_SECONDS_BETWEEN_LINES = 10  # where there is no terminal to draw a bar in
_SMALLEST_BAR, _LARGEST_BAR = 6, 40


class TerminalReporter(Callback):
    """A context that shows progress on standard error."""

    def __init__(self) -> None:
        self._output = output_options()
        self._console = Console(stderr=True, quiet=self._output.quiet)
        self._state = _State()
        self._is_drawn = self._console.is_terminal and not self._output.quiet
        self._last_line = -float("inf")

    def __enter__(self) -> TerminalReporter:
        if self._is_drawn:
            self._live = Live(
                self._state,
                console=self._console,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            self._live.stop()

    @property
    def done(self) -> int:
        """Return the number of finished measurements."""
        return self._state.done

    @property
    def total(self) -> int:
        """Return the largest number of measurements."""
        return self._state.total

    def staged(self, text: str, seconds: float | None) -> None:
        """Show a stage before a search."""
        self.on_stage(text, seconds)

    def stepped(self, done: int, total: int) -> None:
        """Show a step before a search."""
        self.on_step(done, total)

    def on_start(self, started: Started) -> None:
        """Show how much is measured already."""
        known = [e for e in started.known if e.taken is None]
        if count := len({(e.merge, e.key, e.role == "holdout") for e in known}):
            self.notice(f"{count} of at most {started.total} measurements are there")

    def progress(self, progress: Progress) -> None:
        """Show which merge is being measured on which task."""
        weights = " ".join(f"{n}={v:.3f}" for n, v in progress.coefficients.items())
        state = self._state
        state.begin(progress.done, progress.total, progress.task)
        state.merge = f"{progress.role} {weights}"
        self._show_line(f"{progress.role} ({_numbers(progress)}) {progress.task}")

    def stage(self, name: str, fraction: float) -> None:
        """Show how far a stage of the demo's training is."""
        self._state.stage, self._state.merge = None, name
        self._state.begin(round(100 * fraction), 100, "")
        self._show_line(name)

    def on_stage(self, text: str, seconds: float | None) -> None:
        """Show a stage once; with --verbose, with its time."""
        state = self._state
        if seconds is not None:
            state.stage, state.step = None, (0, 0)
            self._say(f"{text}: {seconds:.1f} s", always=False)
            return
        state.stage = text
        first = state.done == 0 or not state.values
        self._say(f"{text} ...", always=first)

    def on_step(self, done: int, total: int) -> None:
        """Show how far a measurement is."""
        self._state.step = done, total
        steps = f" {done}/{total}" if total else ""
        self._show_line(f"{self._state.task}{steps}")

    def on_measured(self, evaluation: Evaluation) -> None:
        """Keep the last value of each task, and show it where more is asked for."""
        e, state = evaluation, self._state
        state.done, state.task = min(state.done + 1, state.total), ""
        state.step = 0, 0
        state.values[e.task] = "failed" if e.failed else f"{e.value:.4g}"
        weights = " ".join(f"{n}={v:.4g}" for n, v in e.coefficients.items())
        value = e.error or str(e.reading)
        text = f"{e.role} {weights}: {e.task} {value} in {e.seconds:.1f} s"
        self._say(text, always=False)

    def notice(self, text: str) -> None:
        """Show a line that stays."""
        self._say(text, always=True)

    def _say(self, text: str, *, always: bool) -> None:
        self._output.write(text)
        if always or self._output.verbose:
            self._console.print(Text(printable(text)), soft_wrap=True)

    def _show_line(self, text: str) -> None:
        """Where there is no terminal, print a line from time to time."""
        now, state = time.monotonic(), self._state
        if self._is_drawn or now - self._last_line < _SECONDS_BETWEEN_LINES:
            return
        count = f"{state.done}/{state.total} " if state.total else ""
        line = f"{count}{text}, {now - state.started:.0f} s"
        if (left := state.left()) is not None:
            line += f", about {left:.0f} s left"
        self._console.print(Text(printable(line)), soft_wrap=True)
        self._last_line = now


class _State:
    """The state of the bar: counts, times, measurement, last value per task.

    Counts are shown at any width; texts are shortened.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.done = self.total = self.before = 0
        self.began = self.started
        self.task = self.merge = ""
        self.step: tuple[int, int] = (0, 0)
        self.stage: str | None = None
        self.values: dict[str, str] = {}

    def begin(self, done: int, total: int, task: str) -> None:
        if not self.total or done < self.before:
            self.began, self.before = time.monotonic(), done
        self.done, self.total, self.task, self.step = done, total, task, (0, 0)

    def left(self) -> float | None:
        """Return the seconds left if each measurement takes as long as the mean."""
        if self.done <= self.before:
            return None
        mean = (time.monotonic() - self.began) / (self.done - self.before)
        return mean * (self.total - self.done)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        width = options.max_width - 1
        yield from self._counts(width) if self.total else ()
        for line in (self._now(width), self._last()):
            if line:
                text = Text(printable(line), no_wrap=True, style="dim")
                text.truncate(width, overflow="ellipsis")
                yield text

    def _counts(self, width: int) -> Iterator[Text]:
        count = f"{self.done}/{self.total} "
        times = f" {_clock(time.monotonic() - self.started)}"
        left = self.left()
        if left is not None:
            times += f", about {_clock(left)} left"
        memory = f", {memory_in_words()}"
        if len(count) + _SMALLEST_BAR + len(times) + len(memory) <= width:
            times += memory
        room = max(0, width - len(count) - len(times))
        size = min(_LARGEST_BAR, room)
        filled = round(size * self.done / self.total)
        line = Text(count, style="bold", no_wrap=True)
        line.append("━" * filled, style="green")
        line.append("━" * (size - filled), style="bright_black")
        line.append(times, style="none")
        yield line

    def _now(self, width: int) -> str:
        done, total = self.step
        steps = f" {done}/{total}" if total else ""
        if not self.task and self.values and not self.stage:
            return "choosing what comes next"
        if self.stage:
            return f"{self.stage}{steps} ..."
        task = _shortened(self.task, max(1, width // 2 - len(steps)))
        return f"{task}{steps}  {self.merge}".strip()

    def _last(self) -> str:
        return "  ".join(f"{task} {value}" for task, value in self.values.items())


def _shortened(text: str, width: int) -> str:
    """Shorten a text that is too long."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _numbers(progress: Progress) -> str:
    return " ".join(f"{v:.3f}" for v in progress.coefficients.values())


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
