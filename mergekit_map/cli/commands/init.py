"""The command that writes a configuration to begin with; imports nothing heavy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from mergekit_map.cli.config_options import filled_in, new_merge_options, text_of
from mergekit_map.cli.options import FOLDER
from mergekit_map.errors import ArtifactError


@click.command()
@click.argument("paths", nargs=-1, type=FOLDER, metavar="[PLAIN] CONFIG")
@new_merge_options
def init(given: dict[str, Any], paths: tuple[Path, ...]) -> None:
    """Write CONFIG, a configuration to begin with; nothing is loaded or looked up.

    From options alone it is what they stand for in run, search and inspect. From PLAIN,
    a configuration of mergekit, it is that with its comments and a map: block added,
    and the weights that are numbers made names, which are searched; --text and --task
    fill that block in: mergekit-map init mergekit.yml merge.yml --task gsm8k

    Example: mergekit-map init merge.yml --base A --model B --model C --text fr.txt
    """
    if not 1 <= len(paths) <= 2:
        raise click.UsageError("[PLAIN] CONFIG was expected, one or two files.")
    config = paths[-1]
    if config.exists():
        new = config.parent / f"{config.stem or 'merge'}-map.yml"
        words = shlex.join(["mergekit-map", "init", str(config), str(new)])
        raise ArtifactError(
            f"{config} exists already and is left as it is; name another file"
            + (f", such as: {words}" if len(paths) == 1 else "")
        )
    single = len(paths) == 1
    text = text_of(given, measured=False) if single else _extended(paths[0], given)
    from mergekit_map.utils.files import write_atomically

    write_atomically(config, text)
    click.echo(f"written to {config}", err=True)
    if not given["texts"] and not given["benchmarks"]:
        click.echo(
            "put texts and benchmarks of your own under 'tasks:', then", err=True
        )
    for command in (["inspect", str(config)], ["run", str(config), "OUT"]):
        click.echo(f"  {shlex.join(['mergekit-map', *command])}", err=True)


def _extended(plain: Path, given: dict[str, Any]) -> str:
    named = [o for o, n in filled_in(given) if n not in {"texts", "benchmarks"}]
    if named:
        raise click.UsageError(
            f"{', '.join(named)}: {plain} says this already; leave it out."
        )
    from mergekit_map.config.template import new_tasks
    from mergekit_map.workflows.init import extend_plain

    return extend_plain(plain, new_tasks(given["texts"], given["benchmarks"]))
