"""``mergekit-map cache``: lists and removes recorded merges."""

from __future__ import annotations

import re
import time

import click

from mergekit_map.errors import ConfigError, nearest
from mergekit_map.results import recordings_cache
from mergekit_map.results.recordings_cache import CacheEntry
from mergekit_map.utils.text import bytes_in_words

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def _size(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> int | str | None:
    """Read a size such as ``50GB``; "auto" stays."""
    if text is None or text == "auto":
        return text
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if found is None:
        message = f"a size such as 50GB, or auto; got {text!r}"
        raise click.BadParameter(message, ctx, param)
    return int(float(found[1]) * _UNITS[found[2]])


@click.command()
@click.option(
    "--remove",
    "removed",
    multiple=True,
    metavar="KEY|all",
    help="Remove what has this key; all: every recorded merge. What a process uses "
    "stays.",
)
@click.option(
    "--limit",
    metavar="SIZE|auto",
    callback=_size,
    help="What recorded merges may take from now on, such as 50GB; those that were not "
    "used for longest go. auto: half of what is free, what they take included.",
)
def cache(removed: tuple[str, ...], limit: int | str | None) -> None:
    """List what is kept between searches; remove it, and bound it.

    A merge that was searched is kept as it was recorded: the base, the prepared task
    vectors and a checkpoint, as large as all its models and one more. The next search
    of these models begins at once, and processes on one machine share its memory. It
    is found by the content of the models, and can be removed at any time.

    Example: mergekit-map cache --limit 200GB
    """
    if limit is not None:
        recordings_cache.set_limit(None if isinstance(limit, str) else limit)
    for key in removed:
        _remove(key)
    recordings_cache.make_room()
    _show(recordings_cache.kept())


def _remove(key: str) -> None:
    kept = recordings_cache.kept()
    chosen = [one for one in kept if one.kind == "merge" or key != "all"]
    if key != "all":
        chosen = [one for one in kept if one.key == key]
        if not chosen:
            known = nearest(key, (one.key for one in kept)) if kept else "it is empty"
            raise ConfigError(f"nothing in the cache has the key {key!r}; {known}")
    for one in chosen:
        if recordings_cache.remove(one):
            click.echo(f"removed {one.key}: {one.what}")
        else:
            click.echo(f"{one.key} stays: a process uses it", err=True)


def _show(kept: list[CacheEntry]) -> None:
    from rich.console import Console
    from rich.text import Text

    from mergekit_map.cli.tables import new_table

    merges = sum(one.n_bytes for one in kept if one.kind == "merge")
    click.echo(
        f"{recordings_cache.recordings_folder()}: recorded merges take "
        f"{bytes_in_words(merges)} of at most "
        f"{bytes_in_words(recordings_cache.limit())}"
    )
    if not kept:
        return
    table = new_table("", ["key", "what"], ["size", "used"])
    for one in kept:
        used = "in use" if one.in_use else _ago(time.time() - one.used)
        cells = (one.key, one.what, bytes_in_words(one.n_bytes), used)
        table.add_row(*map(Text, cells))
    Console().print(table)


def _ago(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name} ago"
    return "just now"
