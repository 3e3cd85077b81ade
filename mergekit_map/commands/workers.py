"""``--workers``: processes that measure, started before anything heavy is imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import click


def workers_option(command: Callable[..., None]) -> Any:
    """Add the option; ``workers`` is whoever measures, None where nobody else does."""

    @click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Let N processes measure, which share GPUs, or the threads of the CPU; "
        "what is found stays the same.",
    )
    @functools.wraps(command)
    def begin(workers: int | None, **arguments: Any) -> None:
        from mergekit_map.steps.processes import Processes

        with Processes(workers) if workers else nullcontext() as processes:
            command(workers=processes, **arguments)

    return begin
