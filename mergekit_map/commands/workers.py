"""``--workers``: whoever measures, started before anything heavy is imported."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import click

if TYPE_CHECKING:
    from mergekit_map.steps.processes import Processes
    from mergekit_map.steps.ray_actors import RayActors

    Staff: TypeAlias = Processes | RayActors


def workers_option(command: Callable[..., None]) -> Any:
    """Add the option; ``workers`` is whoever measures, None where nobody else does."""

    @click.option(
        "--workers",
        metavar="N|ray",
        callback=_read,
        help="Let N processes measure, which share GPUs, or the threads of the CPU; or "
        "a Ray cluster, a worker for each GPU (ray:4 for four). What is found stays "
        "the same.",
    )
    @functools.wraps(command)
    def begin(workers: tuple[str, int | None] | None, **arguments: Any) -> None:
        with nullcontext() if workers is None else _hired(*workers) as staff:
            command(workers=staff, **arguments)

    return begin


def _read(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[str, int | None] | None:
    """Read ``8``, ``ray`` or ``ray:8``: of what kind they are, and how many."""
    if text is None:
        return None
    found = re.fullmatch(r"(?:(ray)(?::(?=.))?)?([0-9]{1,4})?", text)
    if not text or found is None or (found[2] and int(found[2]) < 1):
        message = f"write a number from 1 to 9999, 'ray' or 'ray:N'; got {text!r}"
        raise click.BadParameter(message, ctx, param)
    return found[1] or "", int(found[2]) if found[2] else None


def _hired(kind: str, count: int | None) -> Staff:
    if kind == "ray":
        from mergekit_map.steps.ray_actors import RayActors

        return RayActors(count)
    from mergekit_map.steps.processes import Processes

    assert count is not None
    return Processes(count)
