"""``mergekit-map init``, ``schema`` and ``cache``: only ``schema`` imports mergekit."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mergekit_map.cli.config_options import (
    new_config_text,
    new_merge_options,
    option_names,
)
from mergekit_map.cli.main import command_line
from mergekit_map.cli.options import FILE, starting
from mergekit_map.errors import ConfigError
from mergekit_map.utils.files import refuse_existing, write_atomically
from mergekit_map.utils.text import bytes_in_words


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
    *plain, config = paths
    refuse_existing(config)
    text = _extended(plain[0], given) if plain else new_config_text(given)
    write_atomically(config, text)
    click.echo(f"wrote {config}", err=True)
    for step in (("inspect", config), ("run", config, "OUT")):
        click.echo(f"  {command_line(*step)}", err=True)


def _extended(plain: Path, given: dict[str, Any]) -> str:
    if named := option_names({**given, "text": (), "task": ()}):
        raise click.UsageError(
            f"{', '.join(named)}: {plain} says this already; leave it out."
        )
    from mergekit_map.workflows.init import extend_plain, new_tasks

    return extend_plain(plain, new_tasks(given["text"], given["task"]))


@click.command()
def schema() -> None:
    """Print the JSON Schema of a configuration, for editors.

    They complete keys with it, and check values. Save it once, and name it in the
    first line of a configuration:
    # yaml-language-server: $schema=mergekit-map.schema.json

    Example: mergekit-map schema > mergekit-map.schema.json
    """
    with starting("loading mergekit"):
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
    machine share this memory. All of it can be removed at any time.

    Example: mergekit-map cache --remove all
    """
    from mergekit_map.utils import recordings_cache

    recordings_cache.remove_leftovers()
    for key in removed:
        kept = recordings_cache.kept()
        chosen = [e for e in kept if e.key == key or (key, e.kind) == ("all", "merge")]
        if not chosen and key != "all":
            raise ConfigError(
                f"nothing in the cache has the key {key!r}; see: mergekit-map cache"
            )
        for one in chosen:
            recordings_cache.remove(one)
            click.echo(f"removed {one.key}: {one.what}")
    kept = recordings_cache.kept()
    taken = sum(one.n_bytes for one in kept if one.kind == "merge")
    free = recordings_cache.free_bytes()
    click.echo(
        f"{recordings_cache.recordings_folder()}: recorded merges take "
        f"{bytes_in_words(taken)}; {bytes_in_words(free)} are free"
    )
    for one in kept:
        used = f"{datetime.fromtimestamp(one.used):%Y-%m-%d %H:%M}"
        size = bytes_in_words(one.n_bytes)
        click.echo(f"{one.key}  {one.what}: {size}, used {used}")
