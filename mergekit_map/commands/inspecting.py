"""The command that looks at models and plan before anything is paid for."""

from __future__ import annotations

import json
from pathlib import Path

import click
from mergekit.options import MergeOptions, PrettyPrintHelp

from mergekit_map.commands.merging import merging
from mergekit_map.commands.selecting import FOLDER


@click.command(cls=PrettyPrintHelp)
@click.argument("config", type=FOLDER)
@click.option(
    "--probe",
    is_flag=True,
    help="Also merge once and measure every task once, to say how long a search takes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@merging
def inspect(merge_options: MergeOptions, config: Path, **flags: bool) -> None:
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
    from mergekit_map.inspecting import inspect_config, probe_config
    from mergekit_map.terminal_inspection import (
        show_inspection,
        show_probe,
        show_verdict,
    )

    content = inspect_config(config, merge_options)
    if not flags["as_json"]:
        show_inspection(content)
    if flags["probe"] and content["mergeable"]:
        content["probe"] = probe_config(config, merge_options)
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
