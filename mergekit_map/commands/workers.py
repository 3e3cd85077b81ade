"""``--workers``: processes or Ray actors that measure for a search."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import click


def workers_option(command: Callable[..., None]) -> Any:
    """Add the option; ``workers`` is a number, ``ray`` or ``ray:N``, or None."""

    @click.option(
        "--workers",
        metavar="N|ray",
        callback=_read,
        help="Let N processes measure, which share GPUs, or the threads of the CPU; or "
        "a Ray cluster, a worker for each GPU (ray:4 for four). What is found stays "
        "the same.",
    )
    @functools.wraps(command)
    def begin(workers: int | str | None, **arguments: Any) -> None:
        if isinstance(workers, int):
            from mergekit_map.steps.pool import start_forkserver

            start_forkserver()  # which imports while this process does, too
        command(workers=workers, **arguments)

    return begin


def _read(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> int | str | None:
    if text is None:
        return None
    found = re.fullmatch(r"(?:(ray)(?::(?=.))?)?([0-9]{1,4})?", text)
    if not text or found is None or (found[2] and int(found[2]) < 1):
        message = f"write a number from 1 to 9999, 'ray' or 'ray:N'; got {text!r}"
        raise click.BadParameter(message, ctx, param)
    return text if found[1] else int(found[2])
