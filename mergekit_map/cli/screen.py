"""A search on the terminal: its progress, its answer, and the commands that follow."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from mergekit_map.cli.main import command_line
from mergekit_map.cli.options import output_options, set_output
from mergekit_map.results.log import Evaluation
from mergekit_map.types import SOUP
from mergekit_map.utils.progress import Progress
from mergekit_map.utils.text import printable
from mergekit_map.workflows.callbacks import Callback, Started

if TYPE_CHECKING:
    from mergekit_map.cli.mergekit_options import MergeOptions
    from mergekit_map.results.answer import Answer
    from mergekit_map.results.front import Front

_SECONDS_BETWEEN_LINES = 10  # where there is no terminal to draw a bar in


def show_front(run: Path, front: Front, written: Path) -> Answer:
    """Print the answer of a front; set what --json and --quiet print."""
    from mergekit_map.results.gains import gains
    from mergekit_map.results.limits import unmet_limits

    found = show_answer(front, verbose=output_options().verbose)
    content = {
        "run": str(run),
        "finished": front.unfinished is None,
        "progress": front.unfinished and front.unfinished.model_dump(exclude={"of"}),
        "front": str(run / "front.json"),
        "advice": found.advice,
        "headline": found.headline,
        "sample": found.sample,
        "missed": unmet_limits(front),
        "findings": list(found.findings),
        "details": list(found.details),
        "chosen": {"index": front.selected, **front.chosen.model_dump(mode="json")},
        "recommended": list(front.recommended),
        "reason": front.reason,
        "gains": gains(front).content(),
    }
    set_output(json=content, quiet=written)
    return found


def show_answer(front: Front, *, verbose: bool = False) -> Answer:
    """Print the answer of a front; with ``verbose`` also its details."""
    from mergekit_map.results.answer import advice_on_sample, answer  # not for --help

    console = Console()
    found = answer(front)
    for text in (found.headline, found.sample, *found.findings):
        output_options().write_log(text)
    _print_wrapped(console, found.headline, "bold")
    console.print()
    for line in _gain_lines((found.headings, *found.table), console.width):
        console.print(line)
    _print_wrapped(console, f"\n{found.sample} {advice_on_sample(front)}")
    for finding in [*found.findings, *(found.details if verbose else [])]:
        _print_wrapped(console, f"- {finding}")
    return found


def _print_wrapped(console: Console, text: str, style: str = "") -> None:
    """Print a text without the spaces that rich leaves at the ends of lines."""
    for line in Text(text, style).wrap(console, console.width):
        line.rstrip()
        console.print(line)


def _gain_lines(lines: Sequence[tuple[str, ...]], width: int) -> Iterator[Text]:
    """Lay out headings and rows: a line for each task, and for each model below it.

    A comparison that does not fit is on a line of its own, so that no number is broken.
    """
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    for row, (task, name, value, share, comparison) in enumerate(lines):
        is_heading = row == 0
        if task and not is_heading:
            yield Text(f"task {task}", style="bold")
        name += " " * (widths[1] - cell_len(name))
        line = f"  {name}  {value:>{widths[2]}}  {share:>{widths[3]}}"
        fits = cell_len(line) + 2 + cell_len(comparison) <= width
        text = f"{line}  {comparison}" if fits else f"{line}\n    {comparison}"
        yield Text(text.rstrip(), "dim" if is_heading else "")


def show_steps(
    run: Path, found: Answer, out: Path | None = None, options: Sequence[str] = ()
) -> None:
    """Print commands to copy, each after what it is for."""
    console = Console()
    console.print("\nNext:")
    for purpose, command in next_steps(run, found, out, options):
        # A folded command could not be copied.
        console.print(Text(f"  {purpose:<17} {command}"), soft_wrap=True)


def next_steps(
    run: Path, found: Answer, out: Path | None = None, options: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return purposes and commands after a search, a choice, or the merge ``out``.

    Merge what is advised, look at others or beyond the bounds, publish a merge that is
    advised. Commands that open the models have the ``options``.
    """
    from mergekit_map.results.limits import MISSED
    from mergekit_map.results.selection import MERGE

    browse = ("choose another", command_line("browse", run, *options))
    look = [("see the front", command_line("report", run)), browse]
    bounds = found.wider_bounds
    if bounds and (again := search_command(run, "--bounds", bounds, *options)):
        look = [browse, ("widen the bounds", again)]
    if found.advice == SOUP:
        recipe = run / "recipes" / "soup.yml"
        if not recipe.exists():
            return look
        # The command in it is not copied: a stranger may have written it.
        return [("merge the soup", f"as the first lines of {recipe} say"), *look]
    if out is None:
        purpose = "merge it" if found.advice == MERGE else "merge it anyway"
        return [(purpose, command_line("merge", run, "OUT", *options)), *look]
    publish = ("publish it", command_line("push", out, "YOU/NAME"))
    is_sound = found.advice == MERGE and MISSED not in found.headline
    return [*look, publish] if is_sound else look


def search_command(run: Path, *options: str) -> str:
    """Return the command to search again; empty if relative paths start elsewhere."""
    from mergekit_map.results.run_folder import RunFolder

    manifest = RunFolder(run).read_manifest()
    if Path(manifest.directory) != Path.cwd():
        return ""
    seed = manifest.random_seed
    words = [] if seed in {None, manifest.seed} else ["--random-seed", seed]
    if dtype := manifest.identity.lora_merge_dtype:
        words += ["--lora-merge-dtype", dtype]
    return command_line("search", run / "config.yml", run, *words, *options)


def opening_options(
    run: Path,
    options: MergeOptions,
    model_paths: Mapping[str, str] = {},
    *,
    trust_run: bool = False,
) -> list[str]:
    """Return the options of a command without which the next would be refused."""
    from mergekit_map.config.problems import named_code, parse_map_block
    from mergekit_map.config.yaml_file import read_yaml
    from mergekit_map.merging.recipe import permissions

    words = permissions(options)
    if options.transformers_cache:
        words += ["--transformers-cache", options.transformers_cache]
    if trust_run:
        block, tasks, _ = parse_map_block(read_yaml(run / "config.yml"))
        if block is not None and named_code(tasks, block):
            words = ["--trust-run", *words]
    places = [["--model-path", f"{m}={path}"] for m, path in model_paths.items()]
    return [*words, *itertools.chain(*places)]


class _Stderr(Console):
    def on_broken_pipe(self) -> None:
        """Go on without a reader: Ctrl-C ends ``tee`` before it ends a search."""
        self.quiet = True
        with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())  # others write there, too


class TerminalReporter(Callback):
    """A context that shows progress on standard error.

    A terminal shows it as its last line; elsewhere a line is printed now and then.
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
        self._activity = ""
        self._last_printed = -float("inf")  # time of a line of progress
        self._done = self._total = self._done_at_start = 0  # measurements
        self._start = 0.0  # time of the first measurement

    def __enter__(self) -> TerminalReporter:
        self._live.start()  # it draws nothing where there is no terminal
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._live.stop()
        except OSError:  # the terminal was closed
            self._console.on_broken_pipe()

    def on_start(self, started: Started) -> None:
        """Announce how much will be measured at most, with what is known."""
        most = f"at most {started.total} measurements, each of a merge on a task"
        known = f"; {n} of them are known" if (n := len(started.known)) else ""
        self.on_notice(f"searching: {most}{known}")

    def on_progress(self, progress: Progress) -> None:
        """Show which merge is being measured on which task."""
        if not self._total:
            self._done_at_start = progress.done
            self._start = time.monotonic()
        self._done, self._total = progress.done, progress.total
        weights = " ".join(f"{n}={v:.3f}" for n, v in progress.coefficients.items())
        self._activity = f"merge {weights}, task {progress.task}"
        self._show_progress()

    def on_stage(self, text: str, seconds: float | None) -> None:
        """Show a stage once; with --verbose, with its time."""
        if seconds is not None:
            self._print(f"{text}: {seconds:.1f} s", always=False)
            return
        self._activity = f"{text} ..."
        self._print(self._activity, always=not self._done)
        if not self._done:
            self._last_printed = time.monotonic()  # not a second time
        self._show_progress()

    def on_step(self, done: int, total: int) -> None:
        """Show how far a measurement is."""
        self._show_progress(f", batch {done} of {total}" if total else "")

    def on_measured(self, evaluation: Evaluation) -> None:
        """Count a measurement; with --verbose, show it."""
        e = evaluation
        self._done += 1
        weights = " ".join(f"{n}={v:.4g}" for n, v in e.coefficients.items())
        value = e.error or str(e.reading)
        text = f"{e.role} {weights}: {e.task} {value} in {e.seconds:.1f} s"
        self._print(text, always=False)

    def on_stop(self, error: BaseException) -> None:
        """Show how much of a search is kept."""
        if self._total and isinstance(error, KeyboardInterrupt):
            counts = f"{self._done} of at most {self._total}"
            self.on_notice(f"{counts} measurements are kept")

    def on_notice(self, text: str) -> None:
        """Show a line that stays."""
        self._print(text, always=True)

    def _print(self, text: str, *, always: bool) -> None:
        self._output.write_log(text)
        if always or self._output.verbose:
            self._console.print(Text(printable(text)), soft_wrap=True)

    def _show_progress(self, steps: str = "") -> None:
        counts = left = ""
        if (n_measured := self._done - self._done_at_start) > 0:
            seconds_each = (time.monotonic() - self._start) / n_measured
            seconds = round(seconds_each * (self._total - self._done))
            left = f", about {timedelta(seconds=seconds)} left"
        if self._total:
            counts = f"{self._done} of {self._total} measurements{left}: "
        line = Text(printable(f"{counts}{self._activity}{steps}"))
        self._spinner.update(text=line)
        now = time.monotonic()
        is_due = now - self._last_printed >= _SECONDS_BETWEEN_LINES
        if is_due and not self._console.is_interactive:
            self._last_printed = now
            self._console.print(line, soft_wrap=True)
