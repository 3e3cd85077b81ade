"""``mergekit-map inspect``, ``init``, ``schema`` and ``cache``: before a search."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from mergekit_map.cli.config_options import (
    config_or_options,
    new_config_text,
    new_merge_options,
    option_names,
)
from mergekit_map.cli.main import command_line
from mergekit_map.cli.mergekit_options import MakeOptions, MergeCommand
from mergekit_map.cli.options import (
    FILE,
    model_options,
    output_options,
    set_output,
    slow_imports,
    with_output_options,
)
from mergekit_map.errors import ConfigError
from mergekit_map.utils.files import plain, refuse_existing, write_atomically
from mergekit_map.utils.text import bytes_in_words, count_in_words, listed, printable

if TYPE_CHECKING:
    from mergekit_map.merging.devices import Room
    from mergekit_map.workflows.inspect import Inspection, Plan, Probe

# Severities, the worst first.
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_TASK_VECTOR_PLACES = {
    "device": "on the device",
    "memory": "in memory",
    "mapped": "in a memory-mapped file",
}


@click.command(cls=MergeCommand)
@with_output_options
@config_or_options()
@click.option(
    "--probe",
    is_flag=True,
    help="Also merge and measure once, and print how long a search takes.",
)
@model_options
def inspect(
    make_options: MakeOptions, config: Path, *, probe: bool, **models: Any
) -> int:
    """Check the models and the plan of CONFIG before a search.

    It prints whether the models can be merged, norms and angles of their task vectors,
    how many merges a search measures, and the memory and disk that it needs. No model
    is loaded: some rows of local weights are read. From the Hub it downloads
    configurations, headers, tokenizers, adapters and datasets, but no weights of
    models. The exit code is 0 if the models can be merged, and 2 otherwise.

    Instead of CONFIG, give --base, --model, --text and so on.

    Example: mergekit-map inspect merge.yml --probe
    """
    options = make_options("reading the configuration")
    from mergekit_map.workflows.inspect import inspect_config, probe_config

    inspection = inspect_config(config, options, **models)
    _show(inspection)
    if probe and inspection.mergeable:
        inspection = replace(inspection, probe=probe_config(config, options, **models))
    if inspection.probe is not None:
        _show_probe(inspection.probe)
    counts = Counter(severity for severity, _ in _issues(inspection))
    able = "a search can start" if inspection.mergeable else "no search can start"
    if inspection.mergeable and any(room.falls_short for room in _rooms(inspection)):
        able += ", once there is room"
    style = "bold" if inspection.mergeable else _STYLES["error"]
    _print(f"Errors: {counts['error']}, warnings: {counts['warning']}; {able}.", style)
    set_output(json=plain(asdict(inspection)))
    if output_options().quiet and not inspection.mergeable:
        errors = (text for severity, text in _issues(inspection) if severity == "error")
        raise ConfigError("\n".join(errors))
    return 0 if inspection.mergeable else 2


def _show(inspection: Inspection) -> None:
    if inspection.models:
        _show_models(inspection)
    for pair in sorted(inspection.pairs, key=lambda pair: -abs(pair.cosine or 0)):
        cosine = _format_or_dash(pair.cosine, ".4f")
        text = f"cosine {cosine}, sign conflicts {_format_or_dash(pair.sign_conflicts)}"
        _print(f"Task vectors of {listed(pair.models)}: {text}")
    for severity, text in _issues(inspection):
        _print(f"{severity}: {text}", _STYLES[severity])
    if inspection.plan is not None:
        _print("Plan:", "bold")
        for line in _plan_lines(inspection.plan):
            _print(f"- {line}")


def _show_models(inspection: Inspection) -> None:
    weights = inspection.weights
    numbers = ("parameters", "stored", "norm ratio", "changed")
    columns = [Column(name, justify="right", no_wrap=True) for name in numbers]
    table = Table(Column("model", overflow="fold"), *columns, box=SIMPLE_HEAD)
    for model in inspection.models:
        cells = (
            model.name,
            count_in_words(model.parameters) if model.parameters else "-",
            model.dtype or "-",
            _format_or_dash(model.norm_ratio, ".4f"),
            _format_or_dash(model.changed),
        )
        table.add_row(*map(Text, cells))
    _print(f"Models, against {weights.against}:", "bold")
    Console().print(table)
    if weights.read and not weights.exact:
        n_read, total = map(count_in_words, (weights.read, weights.parameters))
        _print(f"From {n_read} of {total} parameters: of some rows, or some tensors.")
    if any(model.norm_ratio is not None for model in inspection.models):
        _print("Norm ratio: sum of |model - base|, divided by the sum of |base|.")
        _print("Changed: share of the parameters that differ from the base.")
    if weights.on_the_hub:
        _print(f"For missing figures download {listed(weights.on_the_hub)}.")


def _issues(inspection: Inspection) -> list[tuple[str, str]]:
    """List what stands against a search: severity and sentence, the worst first."""
    issues = [("error", f"{p.place}: {p.message}") for p in inspection.problems]
    rooms = _rooms(inspection)
    issues += [("warning", room.in_words()) for room in rooms if room.falls_short]
    found = ((m, f) for m in inspection.models for f in m.findings)
    issues += [(f.severity, f"{m.name} ({m.place}): {f}") for m, f in found]
    return sorted(issues, key=lambda issue: list(_STYLES).index(issue[0]))


def _rooms(inspection: Inspection) -> list[Room]:
    plan = inspection.plan
    return [] if plan is None else [*plan.memory, *plan.disk]


def _show_probe(probe: Probe) -> None:
    _print("Probe at the soup, which is not logged:", "bold")
    _print(f"- opening the models: {probe.load_seconds:.3g} s")
    _print(f"- a merge: {probe.merge_seconds:.3g} s")
    for task, seconds in probe.task_seconds.items():
        _print(f"- {task}: {seconds:.3g} s")
    _print(f"- memory: about {bytes_in_words(probe.peak_bytes)}")
    duration = timedelta(seconds=math.ceil(3600 * probe.expected_hours))
    _print(f"- the whole search: about {duration}")


def _print(text: str, style: str = "") -> None:
    # A folded command could not be copied.
    Console().print(Text(printable(text), style=style), soft_wrap=True)


def _format_or_dash(value: float | None, form: str = ".1%") -> str:
    return "-" if value is None else format(value, form).replace("%", " %")


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"strategy: {plan.strategy}, of {listed(plan.coefficients)}"
    if plan.references:
        yield f"models as they are on disk, and their soup: {plan.references}"
    yield f"merges to fit the surrogates: up to {plan.searched}"
    yield f"points of the predicted front that are measured: up to {plan.front}"
    if parts := [f"{n} of {task}" for task, n in plan.documents.items() if n != "all"]:
        yield f"merges on all documents: {plan.whole}; the others on {listed(parts)}"
    about = "" if plan.expected == plan.measurements else f"about {plan.expected}, "
    yield f"measurements, each of a merge on a task: {about}at most {plan.measurements}"
    if plan.confirming:
        yield f"measurements on held-out data, of these: {plan.confirming}"
    if plan.hours is not None:
        yield f"hours: at most {plan.hours:g}"
    for task, engine in plan.engines.items():
        yield f"answers of {task}: generated by {engine}"
    if plan.device_choice:
        yield plan.device_choice
    if plan.task_vectors is not None:
        yield f"task vectors: {_TASK_VECTOR_PLACES[plan.task_vectors]}"
    yield from (room.in_words() for room in (*plan.memory, *plan.disk))


@click.command()
@click.argument("paths", nargs=-1, type=FILE, metavar="[PLAIN] CONFIG")
@new_merge_options
def init(paths: tuple[Path, ...], **given: Any) -> None:
    """Write CONFIG, a configuration to begin with; no model is loaded.

    It is written from options, as run and search write it. Or it is made of PLAIN, a
    configuration of mergekit: its weights become coefficients, and a map: block with
    the tasks of --text and --task is added.

    Example: mergekit-map init merge.yml --base A --model B --model C --text fr.txt

    Example: mergekit-map init mergekit.yml merge.yml --task gsm8k
    """
    if not 1 <= len(paths) <= 2:
        raise click.UsageError("[PLAIN] CONFIG was expected, one or two files.")
    config = paths[-1]
    refuse_existing(config)
    text = new_config_text(given, {}) if len(paths) == 1 else _extend(paths[0], given)
    write_atomically(config, text)
    click.echo(f"wrote {config}", err=True)
    for words in (("inspect", config), ("run", config, "OUT")):
        click.echo(f"  {command_line(*words)}", err=True)


def _extend(path: Path, given: dict[str, Any]) -> str:
    if named := ", ".join(option_names({**given, "text": (), "task": ()})):
        raise click.UsageError(f"{named}: {path} says this already; leave it out.")
    from mergekit_map.workflows.init import extend_plain, new_tasks

    return extend_plain(path, new_tasks(given["text"], given["task"]))


@click.command()
def schema() -> None:
    """Print the JSON Schema of a configuration, for editors.

    They complete keys with it, and check values. Save it once, and name it in the
    first line of a configuration:
    # yaml-language-server: $schema=mergekit-map.schema.json

    Example: mergekit-map schema > mergekit-map.schema.json
    """
    with slow_imports("loading mergekit"):
        from mergekit_map.workflows.init import config_schema

        content = config_schema()
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))


@click.command()
@click.option(
    "--remove",
    "removed",
    multiple=True,
    metavar="KEY|all",
    help="Remove what has this key; all: every recorded merge.",
)
def cache(removed: tuple[str, ...]) -> None:
    """List what is kept between searches, or remove it.

    Base and prepared task vectors of a search are kept, as large as all of its models
    and one more. The next search of these models begins at once, and processes on one
    machine share this memory. Each can be removed at any time, by its KEY.

    Example: mergekit-map cache --remove all
    """
    from mergekit_map.utils import recordings_cache

    recordings_cache.remove_leftovers()
    for key in removed:
        entries = recordings_cache.kept()
        every = key == "all"
        chosen = [e for e in entries if (e.kind == "merge" if every else e.key == key)]
        if not chosen and not every:
            raise ConfigError(
                f"nothing in the cache has the key {key!r}; see: mergekit-map cache"
            )
        for entry in chosen:
            recordings_cache.remove(entry)
            click.echo(f"removed {entry.key}: {entry.what}")
    entries = recordings_cache.kept()
    taken = sum(entry.n_bytes for entry in entries if entry.kind == "merge")
    free = recordings_cache.free_bytes()
    click.echo(
        f"{recordings_cache.recordings_folder()}: recorded merges take "
        f"{bytes_in_words(taken)}; {bytes_in_words(free)} are free"
    )
    for entry in entries:
        used = f"{datetime.fromtimestamp(entry.used):%Y-%m-%d %H:%M}"
        size = bytes_in_words(entry.n_bytes)
        click.echo(f"{entry.key}  {entry.what}: {size}, used {used}")
