"""The answer of a search on the terminal, with the commands that come next."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mergekit_map.cli.main import command_line
from mergekit_map.cli.options import answer, output_options
from mergekit_map.types import SOUP

if TYPE_CHECKING:
    from mergekit_map.results.answer import Answer
    from mergekit_map.results.front import Front

_STYLES = {"better": "green", "worse": "red"}  # of what is significant
_CACHE = "--lora-merge-cache"  # that mergekit needs for adapters


def show_front(run: Path, front: Front, result: Path) -> Answer:
    """Print the answer of a front, and keep it for programs with the path made."""
    from mergekit_map.results.findings import findings_in_words
    from mergekit_map.results.gains import gains
    from mergekit_map.results.limits import MISSED, limits_in_words

    found = show_answer(front, verbose=output_options().verbose)
    limits = limits_in_words(front)
    merge = front.chosen.model_dump(mode="json")
    answer(
        result,
        run=str(run),
        finished=front.unfinished is None,
        progress=front.unfinished and front.unfinished.model_dump(exclude={"of"}),
        front=str(run / "front.json"),
        advice=found.advice,
        headline=found.headline,
        findings=list(found.findings),
        chosen={"index": front.selected, **merge},
        recommended=list(front.recommended),
        reason=front.reason,
        gains=gains(front).content(),
        gained=[found.headline],
        missed=[limits] if limits.startswith(MISSED) else [],
        confirmed=[] if front.holdout is None else [found.sample],
        verdicts=list(itertools.chain(*findings_in_words(front))),
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
        word = next((w for w in _STYLES if f" {w} by " in comparison), "")
        sure = word and "," not in comparison
        line = f"  {name:<{names}}  {value:>{values}}  {share:>{shares}}"
        gap = "  " if len(line) + 2 + len(comparison) <= width else "\n    "
        text = f"{line}{gap}{comparison}".rstrip()
        yield Text(text, _STYLES[word] if sure else "" if row else "dim")


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

    trusting = _trusting(run / "config.yml") if trusted else []
    look = [
        ("see the front", command_line("report", run)),
        ("choose another", command_line("browse", run)),
    ]
    if found.wider_bounds and (again := _wider_search(run, found.wider_bounds)):
        look = [look[1], ("widen the bounds", command_line(*again, *trusting))]
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
        return [(purpose, command_line("merge", run, "OUT", *trusting)), *look]
    publish = ("publish it", command_line("push", out, "YOU/NAME"))
    return [*look, publish] if found.advice == MERGE else look


def _wider_search(run: Path, bounds: str) -> list[str]:
    """Return the command of a wider search, if its relative paths start here."""
    from mergekit_map.results.run_folder import RunFolder

    before = RunFolder(run).read_manifest()
    if Path(before.directory) != Path.cwd():
        return []
    command = ["search", str(run / "config.yml"), str(run), "--bounds", bounds]
    if before.random_seed not in {None, before.seed}:
        command += ["--random-seed", str(before.random_seed)]
    return command


def _trusting(config: Path) -> list[str]:
    """Return the option that a configuration with code needs in a run folder."""
    from mergekit_map.config.problems import parse_map_block
    from mergekit_map.config.yaml_file import read_yaml
    from mergekit_map.results.run_folder import named_code

    spec, tasks, _ = parse_map_block(read_yaml(config))
    code = spec and named_code(tasks, spec.backend, spec.engine)
    return ["--trust-run"] if code else []
