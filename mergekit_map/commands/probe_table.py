"""The hours that ``inspect --probe`` expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from mergekit_map.steps.inspect import Plan
    from mergekit_map.steps.probing import Probe


def show_probe(probe: Probe, plan: Plan) -> None:
    """Print what was timed."""
    timed = {
        "opening the models": probe.load_seconds,
        "a merge": probe.merge_seconds,
        **probe.task_seconds,
    }
    steps = ", ".join(f"{what} {_time(seconds)}" for what, seconds in timed.items())
    hours = _time(3600 * probe.expected_hours)
    text = f"Probe at the soup: {steps}. The search will take about {hours}. It will "
    console = Console()
    console.print(Text(f"{text}measure it too: a probe is not logged.\n"))
    if plan.hours is not None and probe.merges is not None:
        console.print(Text(_what_the_budget_allows(probe, plan, probe.merges)))


def _what_the_budget_allows(probe: Probe, plan: Plan, merges: int) -> str:
    """Say how many merges can be paid for, and what front that is enough for."""
    if probe.budget_too_small:
        return (
            "warning: the budget is less than what the anchors, the first design and "
            "the end take, which are measured all the same, and hardly anything else.\n"
        )
    least, default = plan.safe, plan.default
    words = f"The budget allows about {merges} merges"
    if merges < least:
        return f"{words}: below {least} a front is a guess.\n"
    if merges < default:
        return (
            f"{words}: enough for a fit, and fewer than the {default} that a search "
            "without a budget may take; the verdicts say how well its front is known.\n"
        )
    return (
        f"{words}, where a search without a budget takes {default} at most; it stops "
        "before that when the front is known.\n"
    )


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"
