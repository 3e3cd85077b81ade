"""A search on the terminal: its progress, its answer, and the commands that follow."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from mergekit_map.cli.main import command_line
from mergekit_map.cli.options import answer, output_options
from mergekit_map.results.log import Evaluation
from mergekit_map.types import SOUP
from mergekit_map.utils.progress import Progress as Searched
from mergekit_map.utils.text import printable
from mergekit_map.workflows.callbacks import Callback, Started

if TYPE_CHECKING:
    from mergekit_map.results.answer import Answer
    from mergekit_map.results.front import Front

_CACHE = "--lora-merge-cache"  # that mergekit needs for adapters
_SECONDS_BETWEEN_LINES = 10  # where there is no terminal to draw a bar in


def show_front(run: Path, front: Front, result: Path) -> Answer:
    """Print the answer of a front, and keep it for programs with the path made."""
    from mergekit_map.results.gains import gains

    found = show_answer(front, verbose=output_options().verbose)
    merge = front.chosen.model_dump(mode="json")
    answer(
        result,
        run=str(run),
        finished=front.unfinished is None,
        progress=front.unfinished and front.unfinished.model_dump(exclude={"of"}),
        front=str(run / "front.json"),
        advice=found.advice,
        headline=found.headline,
        sample=found.sample,
        findings=list(found.findings),
        details=list(found.details),
        chosen={"index": front.selected, **merge},
        recommended=list(front.recommended),
        reason=front.reason,
        gains=gains(front).content(),
    )
    return found


def show_answer(front: Front, *, verbose: bool = False) -> Answer:
    """Print the answer of a front; with ``verbose`` also its details."""
    # Here, as the numbers are not needed for help.
    from mergekit_map.results import answer as answers

    console, found = Console(), answers.answer(front)
    console.print(Text(found.headline, style="bold"))
    console.print()
    for line in _gain_lines((found.headings, *found.table), console.width):
        console.print(line)
    console.print(Text(f"\n{found.sample} {answers.advice_on_sample(front)}".rstrip()))
    for finding in found.findings:
        console.print(Text(f"- {finding}"))
    if verbose:
        console.print()
        for detail in found.details:
            console.print(Text(f"- {detail}"))
    return found


def _gain_lines(lines: Sequence[tuple[str, ...]], width: int) -> Iterator[Text]:
    """Lay out headings and rows: a line for each task, and for each model below it.

    A comparison that finds no room stands on a line of its own, so that no number is
    broken.
    """
    columns = zip(*lines, strict=True)
    _, names, values, shares, _ = (max(map(len, cells)) for cells in columns)
    for row, (task, name, value, share, comparison) in enumerate(lines):
        if task and row:
            yield Text(f"task {task}", style="bold")
        line = f"  {name:<{names}}  {value:>{values}}  {share:>{shares}}"
        gap = "  " if len(line) + 2 + len(comparison) <= width else "\n    "
        yield Text(f"{line}{gap}{comparison}".rstrip(), "" if row else "dim")


def show_steps(
    run: Path, found: Answer, out: Path | None = None, *, trusted: bool = False
) -> None:
    """Print commands to copy, each after what it is for."""
    console = Console()
    console.print("\nNext:")
    for purpose, command in next_steps(run, found, out, trusted=trusted):
        # A command is never folded, which would break it.
        console.print(Text(f"  {purpose:<17} {command}"), soft_wrap=True)


def next_steps(
    run: Path, found: Answer, out: Path | None = None, *, trusted: bool = False
) -> list[tuple[str, str]]:
    """Return purposes and commands after a search, a choice, or the merge ``out``.

    Merge what is advised, look at others or beyond the bounds, publish a merge that is
    advised. If the run folder is ``trusted``, commands run the code that it names.
    """
    from mergekit_map.results.selection import MERGE

    trust = trusting(run / "config.yml") if trusted else []
    look = [
        ("see the front", command_line("report", run)),
        ("choose another", command_line("browse", run)),
    ]
    wider = ("--bounds", found.wider_bounds) if found.wider_bounds else ()
    if wider and (again := searching_again(run, *wider, *trust)):
        look = [look[1], ("widen the bounds", again)]
    if found.advice == SOUP:
        recipe = run / "recipes" / "soup.yml"
        if not recipe.exists():
            return look
        # Its first lines name the whole command, but a stranger may have written them.
        needed = [_CACHE, "CACHE"] if _CACHE in recipe.read_text("utf-8") else []
        command = shlex.join(["mergekit-yaml", str(recipe), "OUT", *needed])
        return [("merge the soup", command), *look]
    if out is None:
        purpose = "merge it" if found.advice == MERGE else "merge it anyway"
        return [(purpose, command_line("merge", run, "OUT", *trust)), *look]
    publish = ("publish it", command_line("push", out, "YOU/NAME"))
    return [*look, publish] if found.advice == MERGE else look


def searching_again(run: Path, *options: str) -> str:
    """Return the command that searches once more, if its relative paths start here."""
    from mergekit_map.results.run_folder import RunFolder

    before = RunFolder(run).read_manifest()
    if Path(before.directory) != Path.cwd():
        return ""
    if before.random_seed not in {None, before.seed}:
        options = ("--random-seed", str(before.random_seed), *options)
    return command_line("search", run / "config.yml", run, *options)


def trusting(config: Path) -> list[str]:
    """Return the option that a configuration with code needs in a run folder."""
    from mergekit_map.config.problems import parse_map_block
    from mergekit_map.config.schema import named_code
    from mergekit_map.config.yaml_file import read_yaml

    spec, tasks, _ = parse_map_block(read_yaml(config))
    code = spec and named_code(tasks, spec.backend, spec.engine)
    return ["--trust-run"] if code else []


class _Stderr(Console):
    def on_broken_pipe(self) -> None:
        """Go on without a reader: Ctrl-C ends ``tee`` before it ends a search."""
        self.quiet = True
        with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())  # others write there, too


class TerminalReporter(Callback):
    """A context that shows progress on standard error.

    A terminal has it as its last line; elsewhere a line is printed from time to time.
    """

    def __init__(self) -> None:
        self._output = output_options()
        self._console = _Stderr(stderr=True, quiet=self._output.quiet)
        self._spinner = Spinner("dots")
        self._live = Live(
            self._spinner,
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._last_line = -float("inf")
        self._what = ""
        self._done = self._total = self._known = 0  # measurements; known at the start
        self._started = 0.0

    def __enter__(self) -> TerminalReporter:
        self._live.start()  # it draws nothing where there is no terminal
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_start(self, started: Started) -> None:
        """Announce how much will be measured at most."""
        most = f"at most {started.total} measurements, each of a merge on a task"
        self.on_notice(f"searching: {most}")

    def on_progress(self, progress: Searched) -> None:
        """Show which merge is being measured on which task."""
        if not self._total:
            self._known, self._started = progress.done, time.monotonic()
        self._done, self._total = progress.done, progress.total
        weights = " ".join(f"{n}={v:.3f}" for n, v in progress.coefficients.items())
        self._what = f"merge {weights}, task {progress.task}"
        self._show()

    def on_stage(self, text: str, seconds: float | None) -> None:
        """Show a stage once; with --verbose, with its time."""
        if seconds is not None:
            self._say(f"{text}: {seconds:.1f} s", always=False)
            return
        self._what = f"{text} ..."
        self._say(self._what, always=not self._done)
        if not self._done:
            self._last_line = time.monotonic()  # not a second time
        self._show()

    def on_step(self, done: int, total: int) -> None:
        """Show how far a measurement is."""
        self._show(f", batch {done} of {total}" if total else "")

    def on_measured(self, evaluation: Evaluation) -> None:
        """Count a measurement, and show it where more is asked for."""
        e = evaluation
        self._done += 1
        weights = " ".join(f"{n}={v:.4g}" for n, v in e.coefficients.items())
        value = e.error or str(e.reading)
        text = f"{e.role} {weights}: {e.task} {value} in {e.seconds:.1f} s"
        self._say(text, always=False)

    def on_stop(self, error: BaseException) -> None:
        """Show how much of a search is kept."""
        if self._total and isinstance(error, KeyboardInterrupt):
            known = f"{self._done} of at most {self._total}"
            self.on_notice(f"{known} measurements are kept")

    def on_notice(self, text: str) -> None:
        """Show a line that stays."""
        self._say(text, always=True)

    def _say(self, text: str, *, always: bool) -> None:
        self._output.write(text)
        if always or self._output.verbose:
            self._console.print(Text(printable(text)), soft_wrap=True)

    def _show(self, steps: str = "") -> None:
        counts = ""
        if self._total:
            counts = f"{self._done} of {self._total} measurements{self._left()}: "
        line = Text(printable(f"{counts}{self._what}{steps}"))
        self._spinner.update(text=line)
        now = time.monotonic()
        if self._console.is_terminal or now - self._last_line < _SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        self._console.print(line, soft_wrap=True)

    def _left(self) -> str:
        """Return about how long the other measurements take."""
        if self._done <= self._known:
            return ""
        each = (time.monotonic() - self._started) / (self._done - self._known)
        left = timedelta(seconds=round(each * (self._total - self._done)))
        return f", about {left} left"
