"""``mergekit-map inspect``: checks models and plan before a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mergekit_map.cli.config_options import config_or_options
from mergekit_map.cli.mergekit_options import MakeOptions, MergeCommand
from mergekit_map.cli.options import model_options
from mergekit_map.cli.output import answer, with_output_options
from mergekit_map.cli.screen import new_table
from mergekit_map.utils.text import bytes_in_words, count_in_words, listed

if TYPE_CHECKING:
    from mergekit_map.models.facts import Finding
    from mergekit_map.workflows.inspect import Inspection, Pair, Plan, Probe

# Of severities, the worst first.
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_PLACES = {"device": "on the device", "memory": "in memory", "mapped": "memory-mapped"}


@click.command(cls=MergeCommand)
@with_output_options
@config_or_options()
@click.option(
    "--probe",
    is_flag=True,
    help="Also merge once and measure every task once, to say how long a search takes.",
)
@model_options
def inspect(
    make_options: MakeOptions, config: Path, *, probe: bool, **where: Any
) -> int:
    """Check the models and the plan of CONFIG before any money is spent.

    Says for every model what stands against merging it, how long its task vector is,
    and how task vectors lie to one another; then how many merges a search evaluates,
    and what memory and disk it wants. No model is loaded: some rows of the weights
    that are here are read, and of models on the Hub only configurations, headers and
    tokenizers are downloaded, but adapters and the datasets of the tasks whole. The
    exit code is 0 where the models can be merged, warnings or not, and 2 otherwise.
    Without CONFIG, --base to --dtype say what it would.

    Example: mergekit-map inspect merge.yml --probe
    """
    options = make_options(f"reading {config.name}")
    from mergekit_map.models.references import advice_on_missing
    from mergekit_map.utils.files import plain
    from mergekit_map.workflows.inspect import inspect_config, probe_config

    inspection = inspect_config(config, options, **where)
    _show(inspection)
    if probe and inspection.mergeable:
        inspection = replace(inspection, probe=probe_config(config, options, **where))
    elif probe:
        click.echo("not probed, since the models cannot be merged", err=True)
    _show_verdict(inspection)
    if inspection.lost:
        click.echo(advice_on_missing(inspection.lost))
    answer(**plain(asdict(inspection)))
    return 0 if inspection.mergeable else 2


def _show(inspection: Inspection) -> None:
    """Print figures, findings and plan."""
    console, plan = Console(), inspection.plan
    if inspection.models:
        console.print(_models(inspection))
        _print(f"{' '.join(_about_figures(inspection))}\n")
    if inspection.pairs:
        console.print(_pairs(inspection.pairs))
    for problem in inspection.problems:
        _print(f"error: {problem.place}: {problem.message}", _STYLES["error"])
    for model in filter(lambda model: model.findings, inspection.models):
        _print(f"{model.name} ({model.place})", "bold")
        for finding in sorted(model.findings, key=_rank):
            line = Text(f"{finding.severity}: ", style=_STYLES[finding.severity])
            console.print(Padding(Text() + line + f"{finding}.", (0, 0, 0, 2)))
        console.print()
    if plan is not None:
        for sentence in _plan_in_words(plan):
            _print(sentence)
        for room in (*plan.memory, *plan.disk):
            _print(f"{room.in_words()}.")
        console.print()
    for text in _warnings(inspection):
        _print(f"warning: {text}.\n", _STYLES["warning"])


def _warnings(inspection: Inspection) -> Iterator[str]:
    yield from inspection.small_samples
    if plan := inspection.plan:
        rooms = (*plan.memory, *plan.disk)
        yield from (room.in_words() for room in rooms if room.falls_short)


def _show_verdict(inspection: Inspection) -> None:
    """Print the timings, and in a line whether a search can start."""
    probe, plan = inspection.probe, inspection.plan
    if probe is not None and plan is not None:
        for sentence in _probe_in_words(probe, plan):
            _print(f"{sentence}\n")
    found = [f.severity for model in inspection.models for f in model.findings]
    found += ["error" for _ in inspection.problems]
    found += ["warning" for _ in _warnings(inspection)]
    counts = {what: found.count(what) for what in ("error", "warning")}
    words = ", ".join(_count(n, what) for what, n in counts.items() if n)
    able = "a search can start" if inspection.mergeable else "no search can start"
    style = "bold" if inspection.mergeable else _STYLES["error"]
    _print(f"{words or 'No errors, no warnings'}: {able}.", style)


def _rank(finding: Finding) -> int:
    return list(_STYLES).index(finding.severity)


def _print(text: str, style: str = "") -> None:
    Console().print(Text(text, style=style))


def _models(inspection: Inspection) -> Table:
    rows = []
    for model in inspection.models:
        worst = min(model.findings, key=_rank, default=None)
        severity = worst.severity if worst else ""
        cells = (
            model.name,
            count_in_words(model.parameters) if model.parameters else "-",
            model.dtype or "-",
            _figure(model.norm_ratio, ".4f"),
            _figure(model.changed, ".1%"),
            severity,
        )
        rows.append([Text(cell, _STYLES.get(severity, "")) for cell in cells])
    headings = ["model", ">parameters", ">stored", ">norm ratio", ">changed", ">issues"]
    return new_table(headings, rows, f"Models, against {inspection.weights.against}")


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form).replace("%", " %")


def _about_figures(inspection: Inspection) -> Iterator[str]:
    weights = inspection.weights
    if weights.read and not weights.exact:
        n_read, total = map(count_in_words, (weights.read, weights.parameters))
        yield f"Read were evenly spread rows: {n_read} of {total} parameters."
    if any(model.norm_ratio is not None for model in inspection.models):
        yield "Norm ratio: sum of |model - base|, divided by the sum of |base|."
    if weights.on_the_hub:
        yield f"For missing figures download {listed(weights.on_the_hub)}."


def _pairs(pairs: Sequence[Pair]) -> Table:
    rows = [
        (
            ", ".join(pair.models),
            _figure(pair.cosine, ".4f"),
            _figure(pair.sign_conflicts, ".1%"),
        )
        for pair in sorted(pairs, key=lambda pair: -abs(pair.cosine or 0))
    ]
    title = "Task vectors, the most alike first"
    return new_table(["pair", ">cosine", ">sign conflicts"], rows, title)


def _plan_in_words(plan: Plan) -> Iterator[str]:
    counts = f"about {plan.expected} measurements, at most {plan.measurements}"
    if plan.expected == plan.measurements:
        counts = f"{plan.expected} measurements"
    merges = f"up to {plan.searched} merges to fit the surrogates"
    if plan.references:
        merges = f"{plan.references} reference points (base, parents, soup), {merges}"
    merges += f", then up to {plan.front} of the predicted front"
    if plan.confirming:
        counts += (
            f"; {plan.confirming} of them confirm the choice on documents that the "
            "search never sees"
        )
    yield (
        f"Plan (`strategy: {plan.strategy}`): {merges}. "
        f"With {_count(len(plan.tasks), 'task')} that makes {counts}."
    )
    if in_part := {task: n for task, n in plan.documents.items() if n != "all"}:
        asked = listed(f"{n} of {task}" for task, n in in_part.items())
        yield (
            f"{plan.whole} of these merges (reference points, front) are measured on "
            f"all documents, the others on {asked}."
        )
    for task, engine in plan.engines.items():
        yield f"Answers of {task} are generated by {engine}."
    if plan.hours is not None:
        yield f"It ends when {plan.hours:g} hours are used, or before that."
    if plan.device_choice:
        yield f"{plan.device_choice}."
    if plan.task_vectors is not None:
        yield (
            f"Task vectors are {_PLACES[plan.task_vectors]} ({plan.task_vectors_why})."
        )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _probe_in_words(probe: Probe, plan: Plan) -> Iterator[str]:
    timed = {
        "opening the models": probe.load_seconds,
        "a merge": probe.merge_seconds,
        **probe.task_seconds,
    }
    steps = ", ".join(f"{what} {_time(seconds)}" for what, seconds in timed.items())
    if probe.peak_bytes is not None:
        steps += f", at most {bytes_in_words(probe.peak_bytes)} of memory"
    yield (
        f"Probe at the soup: {steps}. The search will take about "
        f"{_time(3600 * probe.expected_hours)}. The probe is not logged."
    )
    if plan.hours is not None and plan.hours < probe.expected_hours:
        yield (
            f"warning: {plan.hours:g} hours are less than that. Base, parents, soup, "
            "the first design and the choice are measured in any case."
        )


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"
