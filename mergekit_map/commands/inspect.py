"""The command that looks at models and plan before anything is paid for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from mergekit.options import MergeOptions, PrettyPrintHelp
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mergekit_map.commands.merge_options import merging
from mergekit_map.commands.options import FOLDER, trust_option
from mergekit_map.words import bytes_in_words, count_in_words

# Of severities, the worst first.
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_MOST_PAIRS = 10  # in the table; where there are more, those that are most alike
_WHERE = {"cpu": "host memory"}  # other devices by their names


@click.command(cls=PrettyPrintHelp)
@click.argument("config", type=FOLDER)
@click.option(
    "--probe",
    is_flag=True,
    help="Also merge once and measure every task once, to say how long a search takes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@trust_option
@merging
def inspect(
    merge_options: MergeOptions, config: Path, *, trust_run: bool, **flags: bool
) -> None:
    """Check the models and the plan of CONFIG before any money is spent.

    Says for every model what stands against merging it, how long its task vector is,
    and how task vectors lie to one another; then how many merges a search evaluates,
    and what memory and disk it wants. No model is loaded: some rows of the weights
    that are here are read, and of models on the Hub only configurations, headers and
    tokenizers are downloaded, but adapters and the datasets of the tasks whole. The
    exit code is 0 where the models can be merged, warnings or not, and 2 otherwise.

    Example: mergekit-map inspect merge.yml --probe
    """
    from mergekit_map.files import plain
    from mergekit_map.steps.inspect import inspect_config, probe_config

    content = inspect_config(config, merge_options, trust_run=trust_run)
    if not flags["as_json"]:
        show_inspection(content)
    if flags["probe"] and content["mergeable"]:
        content["probe"] = probe_config(config, merge_options, trust_run=trust_run)
    elif flags["probe"]:
        click.echo("not probed, since the models cannot be merged", err=True)
    if flags["as_json"]:
        click.echo(json.dumps(plain(content), indent=1, allow_nan=False))
    else:
        if content["probe"] is not None:
            show_probe(content["probe"])
        show_verdict(content)
    if not content["mergeable"]:
        raise SystemExit(2)


def show_inspection(content: Mapping[str, Any]) -> None:
    """Print figures, findings and plan, as ``inspect_config`` gives them."""
    console = Console()
    if content["models"]:
        console.print(_models(content))
        _print(console, _what_was_read(content))
    if content["pairs"]:
        console.print(_pairs(content["pairs"]))
    for problem in content["problems"]:
        _print(console, f"error: {problem['place']}: {problem['message']}", "error")
    for model in content["models"]:
        _show_findings(console, model)
    if content["plan"] is not None:
        _show_plan(console, content["plan"])


def show_probe(probe: Mapping[str, Any]) -> None:
    """Print what was timed, as ``probe_config`` gives it."""
    timed = {
        "opening the models": probe["load_seconds"],
        "a merge": probe["merge_seconds"],
        **probe["task_seconds"],
    }
    steps = ", ".join(f"{what} {_time(seconds)}" for what, seconds in timed.items())
    hours = _time(3600 * probe["expected_hours"])
    text = f"Probe at the soup: {steps}. The search will take about {hours}. It will "
    _print(Console(), f"{text}measure the soup itself: a probe is not logged.\n")


def show_verdict(content: Mapping[str, Any]) -> None:
    """Print in a line whether a search can start."""
    findings = [f for model in content["models"] for f in model["findings"]]
    counts = {
        severity: sum(finding["severity"] == severity for finding in findings)
        for severity in ("error", "warning")
    }
    counts["error"] += len(content["problems"])
    counts["warning"] += len((content["plan"] or {}).get("shortages", ()))
    words = [f"{n} {what}{'s' if n > 1 else ''}" for what, n in counts.items() if n]
    listed = ", ".join(words) or "No errors, no warnings"
    able = "a search can start" if content["mergeable"] else "no search can start"
    style = "bold" if content["mergeable"] else "error"
    _print(Console(), f"{listed}: {able}.", style)


def _models(content: Mapping[str, Any]) -> Table:
    against = content["weights"]["against"]
    table = _table(f"Models, against {against}")
    table.add_column("model", overflow="fold")
    for heading in ("parameters", "stored", "norm ratio", "changed", "found"):
        table.add_column(heading, justify="right", no_wrap=True)
    for model in content["models"]:
        found = [finding["severity"] for finding in model["findings"]]
        worst = min(found, key=list(_STYLES).index, default="")
        ratio, changed = model["norm_ratio"], model["changed"]
        cells = (
            model["name"],
            count_in_words(model["parameters"]) if model["parameters"] else "-",
            model["dtype"] or "-",
            "-" if ratio is None else f"{ratio:.4f}",
            "-" if changed is None else f"{100 * changed:.1f} %",
            worst,
        )
        table.add_row(*map(Text, cells), style=_STYLES.get(worst, ""))
    return table


def _what_was_read(content: Mapping[str, Any]) -> str:
    texts, weights = [], content["weights"]
    if weights["read"]:
        n_read, total = (count_in_words(weights[key]) for key in ("read", "parameters"))
        texts.append(
            f"All {total} parameters were read."
            if weights["exact"]
            else f"Read were {n_read} of {total} parameters, in evenly spread rows."
        )
    if any(model["norm_ratio"] is not None for model in content["models"]):
        texts.append(
            "The norm ratio is |task vector| / |model|, both L1: 0.01 to 0.02 in the "
            "paper."
        )
    if weights["on_the_hub"]:
        names = ", ".join(weights["on_the_hub"])
        texts.append(
            f"Weights that are not here were not read ({names}): download them for "
            "all that only weights can tell."
        )
    return " ".join(texts) + "\n"


def _pairs(pairs: Sequence[Mapping[str, Any]]) -> Table:
    shown = sorted(pairs, key=lambda pair: -abs(pair["cosine"] or 0))[:_MOST_PAIRS]
    title = "Task vectors"
    if len(shown) < len(pairs):
        title += f": {len(shown)} of {len(pairs)} pairs, the most alike first"
    table = _table(title)
    table.add_column("pair", overflow="fold")
    table.add_column("cosine", justify="right", no_wrap=True)
    table.add_column("sign conflicts", justify="right", no_wrap=True)
    for pair in shown:
        cosine, conflicts = pair["cosine"], pair["sign_conflicts"]
        cells = (
            ", ".join(pair["models"]),
            "-" if cosine is None else f"{cosine:.4f}",
            "-" if conflicts is None else f"{100 * conflicts:.1f} %",
        )
        table.add_row(*map(Text, cells))
    return table


def _show_findings(console: Console, model: Mapping[str, Any]) -> None:
    if not model["findings"]:
        return
    _print(console, f"{model['name']} ({model['place']})", "bold")
    order = list(_STYLES)
    for finding in sorted(model["findings"], key=lambda f: order.index(f["severity"])):
        text = "; ".join(t for t in (finding["cause"], finding["advice"]) if t)
        line = Text(f"{finding['severity']}: ", style=_STYLES[finding["severity"]])
        console.print(Padding(line + Text(f"{text}.", style=""), (0, 0, 0, 2)))
    console.print()


def _show_plan(console: Console, plan: Mapping[str, Any]) -> None:
    n, m = len(plan["coefficients"]), len(plan["tasks"])
    about = "" if plan["expected"] == plan["measurements"] else "about "
    most = f", at most {plan['measurements']}" if about else ""
    _print(
        console,
        f"Plan: strategy {plan['strategy']}, {_count(n, 'coefficient')}, "
        f"{_count(m, 'task')}: {plan['searched']} merges and up to {plan['front']} "
        f"points of the front, {about}{plan['expected']} measurements{most}.",
    )
    table = _table("")
    table.add_column("for", overflow="fold")
    table.add_column("where", overflow="fold")
    for heading in ("needs", "free now"):
        table.add_column(heading, justify="right", no_wrap=True)
    for need in (*plan["memory"], *plan["disk"]):
        free = "-" if need["free"] is None else bytes_in_words(need["free"])
        where = _WHERE.get(need["where"], need["where"])
        cells = (need["what"], where, bytes_in_words(need["n_bytes"]), free)
        table.add_row(*map(Text, cells))
    console.print(table)
    for need in plan["shortages"]:
        wanted, free = (bytes_in_words(need[key]) for key in ("n_bytes", "free"))
        _print(
            console,
            f"warning: {_WHERE.get(need['where'], need['where'])} has {free} free, and "
            f"{wanted} are needed for {need['what']}.\n",
            "warning",
        )


def _table(title: str) -> Table:
    return Table(
        title=title or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=_STYLES.get(style, style)))


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"
