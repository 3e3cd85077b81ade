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
from mergekit_map.cli.mergekit_options import MergeCommand, MergeOptions, merging
from mergekit_map.cli.options import (
    model_options,
    print_missing_models,
    starting,
)
from mergekit_map.cli.output import answer, with_output_options
from mergekit_map.cli.screen import new_table
from mergekit_map.utils.text import bytes_in_words, count_in_words, listed

if TYPE_CHECKING:
    from mergekit_map.merging.memory import Need
    from mergekit_map.workflows.inspect import Inspection, Model, Pair, Plan, Probe

# Of severities, the worst first.
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
# Other devices by their names.
_DEVICES = {"cpu": "host memory", "mapped": "mapped, free memory"}
_PLACES = {"device": "on the device", "memory": "in memory", "mapped": "memory-mapped"}


@click.command(cls=MergeCommand)
@with_output_options()
@config_or_options()
@click.option(
    "--probe",
    is_flag=True,
    help="Also merge once and measure every task once, to say how long a search takes.",
)
@model_options
@merging("reading {config}", "config")
def inspect(
    merge_options: MergeOptions, config: Path, *, probe: bool, **where: Any
) -> int:
    """Check the models and the plan of CONFIG before any money is spent.

    Says for every model what stands against merging it, how long its task vector is,
    and how task vectors lie to one another; then how many merges a search evaluates,
    and what memory and disk it wants. No model is loaded: some rows of the weights
    that are here are read, and of models on the Hub only configurations, headers and
    tokenizers are downloaded, but adapters and the datasets of the tasks whole. The
    exit code is 0 where the models can be merged, warnings or not, and 2 otherwise.

    Example: mergekit-map inspect merge.yml --probe
    """
    with starting():
        from mergekit_map.utils.files import plain
        from mergekit_map.workflows.inspect import inspect_config, probe_config

    inspection = inspect_config(config, merge_options, **where)
    _show(inspection)
    if probe and inspection.mergeable:
        timed = probe_config(config, merge_options, **where)
        inspection = replace(inspection, probe=timed)
    elif probe:
        click.echo("not probed, since the models cannot be merged", err=True)
    _show_verdict(inspection)
    print_missing_models(inspection.lost)
    answer(**plain(asdict(inspection)))
    return 0 if inspection.mergeable else 2


def _show(inspection: Inspection) -> None:
    """Print figures, findings and plan."""
    console, plan = Console(), inspection.plan
    if inspection.models:
        console.print(_models(inspection))
        console.print(Text(f"{' '.join(_about_figures(inspection))}\n"))
    if inspection.pairs:
        console.print(_pairs(inspection.pairs))
    for problem in inspection.problems:
        _print(f"error: {problem.place}: {problem.message}", _STYLES["error"])
    for model in inspection.models:
        _show_findings(console, model)
    for text in inspection.small_samples:
        _print(f"warning: {text}.\n", _STYLES["warning"])
    if plan is not None:
        for sentence in _plan_in_words(plan):
            _print(sentence)
        console.print(_needs(plan))
        for need in plan.shortages:
            _print(f"warning: {_shortage(need)}.\n", _STYLES["warning"])


def _show_verdict(inspection: Inspection) -> None:
    """Print the timings, and in a line whether a search can start."""
    probe, plan = inspection.probe, inspection.plan
    if probe is not None and plan is not None:
        for sentence in _probe_in_words(probe, plan):
            _print(f"{sentence}\n")
    findings = [f.severity for model in inspection.models for f in model.findings]
    errors = findings.count("error") + len(inspection.problems)
    warnings = findings.count("warning") + len(inspection.small_samples)
    warnings += len(plan.shortages) if plan else 0
    counts = {"error": errors, "warning": warnings}
    words = ", ".join(_count(n, what) for what, n in counts.items() if n)
    able = "a search can start" if inspection.mergeable else "no search can start"
    style = "bold" if inspection.mergeable else _STYLES["error"]
    _print(f"{words or 'No errors, no warnings'}: {able}.", style)


def _print(text: str, style: str = "") -> None:
    Console().print(Text(text, style=style))


def _models(inspection: Inspection) -> Table:
    title = f"Models, against {inspection.weights.against}"
    headings = ["parameters", "stored", "norm ratio", "changed", "found"]
    table = new_table(title, ["model"], headings)
    for model in inspection.models:
        found = [finding.severity for finding in model.findings]
        worst = min(found, key=list(_STYLES).index, default="")
        cells = (
            model.name,
            count_in_words(model.parameters) if model.parameters else "-",
            model.dtype or "-",
            "-" if model.norm_ratio is None else f"{model.norm_ratio:.4f}",
            "-" if model.changed is None else f"{100 * model.changed:.1f} %",
            worst,
        )
        table.add_row(*map(Text, cells), style=_STYLES.get(worst, ""))
    return table


def _about_figures(inspection: Inspection) -> Iterator[str]:
    weights = inspection.weights
    if weights.read and not weights.exact:
        n_read, total = map(count_in_words, (weights.read, weights.parameters))
        yield f"{n_read} of {total} parameters were read, in evenly spread rows."
    if any(model.norm_ratio is not None for model in inspection.models):
        yield "The norm ratio is |task vector| / |base|: 0.01 to 0.02 in the paper."
    if weights.on_the_hub:
        names = ", ".join(weights.on_the_hub)
        yield f"Download {names} for what only weights can tell: they are not here."


def _pairs(pairs: Sequence[Pair]) -> Table:
    title = "Task vectors, the most alike first"
    table = new_table(title, ["pair"], ["cosine", "sign conflicts"])
    for pair in sorted(pairs, key=lambda pair: -abs(pair.cosine or 0)):
        conflicts = pair.sign_conflicts
        cells = (
            ", ".join(pair.models),
            "-" if pair.cosine is None else f"{pair.cosine:.4f}",
            "-" if conflicts is None else f"{100 * conflicts:.1f} %",
        )
        table.add_row(*map(Text, cells))
    return table


def _show_findings(console: Console, model: Model) -> None:
    if not model.findings:
        return
    _print(f"{model.name} ({model.place})", "bold")
    order = list(_STYLES)
    for finding in sorted(model.findings, key=lambda f: order.index(f.severity)):
        line = Text(f"{finding.severity}: ", style=_STYLES[finding.severity])
        console.print(Padding(line + Text(f"{finding}.", style=""), (0, 0, 0, 2)))
    console.print()


def _plan_in_words(plan: Plan) -> Iterator[str]:
    counts = f"about {plan.expected} measurements, at most {plan.measurements}"
    if plan.expected == plan.measurements:
        counts = f"{plan.expected} measurements"
    beside = ""
    if plan.references:
        beside = f" and {plan.references} reference points (base, parents, soup)"
    held_out = ""
    if plan.confirming:
        held_out = (
            f"; {plan.confirming} of them confirm the choice on documents that the "
            "search never sees"
        )
    yield (
        f"Plan: strategy {plan.strategy}, "
        f"{_count(len(plan.coefficients), 'coefficient')}, "
        f"{_count(len(plan.tasks), 'task')}: up to {plan.searched} merges, "
        f"{plan.front} points of the front{beside}, {counts}{held_out}."
    )
    in_part = {t: count for t, count in plan.documents.items() if count != "all"}
    if in_part:
        asked = listed(f"{count} of {task}" for task, count in in_part.items())
        yield (
            f"Measured on all documents: {plan.whole} of these merges, the anchors "
            f"and points of the front; the others on {asked}."
        )
    for task, engine in plan.engines.items():
        yield f"Answers of {task} are generated by {engine}."
    if plan.hours is not None:
        yield (
            f"It ends when {plan.hours:g} hours are used, or before that: --probe says "
            "how many merges they pay for."
        )
    if plan.device_choice:
        yield f"{plan.device_choice}."
    if plan.task_vectors is not None:
        yield (
            f"Task vectors are {_PLACES[plan.task_vectors]} ({plan.task_vectors_why})."
        )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _needs(plan: Plan) -> Table:
    table = new_table("", ["for", "where"], ["needs", "free now"])
    for need in (*plan.memory, *plan.disk):
        free = "-" if need.free is None else bytes_in_words(need.free)
        where = _DEVICES.get(need.where, need.where)
        cells = (need.what, where, bytes_in_words(need.n_bytes), free)
        table.add_row(*map(Text, cells))
    return table


def _shortage(need: Need) -> str:
    free = "nothing" if need.free is None else bytes_in_words(need.free)
    return (
        f"{_DEVICES.get(need.where, need.where)} has {free} free, and "
        f"{bytes_in_words(need.n_bytes)} are needed for {need.what}"
    )


def _probe_in_words(probe: Probe, plan: Plan) -> Iterator[str]:
    timed = {
        "opening the models": probe.load_seconds,
        "a merge": probe.merge_seconds,
        **probe.task_seconds,
    }
    steps = ", ".join(f"{what} {_time(seconds)}" for what, seconds in timed.items())
    hours = _time(3600 * probe.expected_hours)
    yield (
        f"Probe at the soup: {steps}. The search will take about {hours}. The probe is "
        "not logged."
    )
    if plan.hours is None or probe.merges is None:
        return
    words = f"The budget allows about {probe.merges} merges"
    if probe.budget_too_small:
        yield (
            "warning: the budget is less than what the anchors, the first design and "
            "the end take, which are measured all the same, and hardly anything else."
        )
    elif probe.merges < plan.safe:
        yield f"{words}: below {plan.safe} a front is a guess."
    else:
        yield f"{words}; without a budget a search takes at most {plan.default}."


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"
