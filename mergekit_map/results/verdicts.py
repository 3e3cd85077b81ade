"""What the numbers of a front mean, as findings; ``verdict_words`` says them.

Three questions: is there a trade-off, is any merge better than what one had before, and
can the chosen point be believed. Dominance is judged on measured values alone, and a
difference counts where it exceeds two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.search.selection import select_by_preference
from mergekit_map.search.tradeoff import (
    NOISE_FACTOR,
    TradeOff,
    detect_tradeoff,
    dominates,
)

# R² left out one by one, below which a surrogate is said to be wrong.
_GOOD_FIT = 0.9
_SAME_DIGITS = 1e-4  # relative difference that four digits do not show


@dataclass(frozen=True)
class PoorFit:
    """A surrogate that cannot be believed, or not be checked."""

    task: str
    loo_r2: float | None  # None where no merge can be spared to check it
    noisy: bool = False  # whether noise alone explains it


@dataclass(frozen=True, eq=False)
class Ahead:
    """One merge is as good as another on all tasks, and better on some."""

    merge: Merge
    other: Merge
    tasks: tuple[str, ...]  # on which it is better
    blind: tuple[str, ...]  # those of them whose noise is unknown
    others: int = 0  # merges besides that are ahead as well


@dataclass(frozen=True, eq=False)
class AnchorCompared:
    """An anchor held against all that was measured."""

    anchor: Merge
    missing: tuple[str, ...]  # tasks that it was not measured on; nothing else then
    dominated: Ahead | None = None
    dominates_chosen: Ahead | None = None


@dataclass(frozen=True)
class Miss:
    """A prediction that measurement contradicts."""

    task: str
    predicted: Reading
    measured: Reading
    apart: float  # in the task's units
    noise: float  # standard error of that; 0 where it is unknown


@dataclass(frozen=True)
class Held:
    """What was predicted of the chosen point, held against what was measured."""

    misses: tuple[Miss, ...]
    agreeing: tuple[str, ...]
    missing: tuple[str, ...]


Verdict: TypeAlias = TradeOff | PoorFit | AnchorCompared | Held | Ahead


def judge(front: Front) -> list[Verdict]:
    """List the findings on trade-off, fits, anchors, and the chosen point."""
    chosen = front.chosen
    others = [p for p in front.points if p is not chosen]
    # In the order in which they are named where several will do.
    merges = [chosen, *others, *front.merges]
    known = [*merges, *front.anchors]
    better = _ahead_of(front, merges[1:], chosen)
    return [
        detect_tradeoff(
            front.utilities(front.points, "predicted"),
            front.stderrs(front.points, "predicted"),
        ),
        *(found for task in front.tasks for found in _on_fit(front, task)),
        *(_on_anchor(front, anchor, known) for anchor in front.anchors),
        _on_prediction(front),
        *([_best_of(front, better)] if better else []),
    ]


def _on_fit(front: Front, task: str) -> list[PoorFit]:
    fit = front.tasks[task].fit
    if fit.loo_r2 is None:
        return [PoorFit(task, None)]
    if fit.loo_r2 >= _GOOD_FIT:
        return []
    known = [m.measured[task].stderr for m in (*front.points, *front.anchors)]
    noise, scatter = [stderr for stderr in known if stderr], fit.residual_stderr
    noisy = bool(noise and scatter and scatter <= float(np.median(noise)))
    return [PoorFit(task, fit.loo_r2, noisy)]


def _on_anchor(front: Front, anchor: Merge, merges: Sequence[Merge]) -> AnchorCompared:
    """Find what dominates an anchor, and whether it dominates the chosen merge."""
    missing = _not_measured(front, anchor)
    if missing:
        return AnchorCompared(anchor, missing)
    better = _ahead_of(front, merges, anchor)
    worse = _ahead_of(front, [anchor], front.chosen)
    return AnchorCompared(
        anchor, (), better[0] if better else None, worse[0] if worse else None
    )


def _on_prediction(front: Front) -> Held:
    missing = _not_measured(front, front.chosen)
    misses, agreeing = [], []
    for task in front.tasks:
        if task in missing:
            continue
        miss = _miss(front.chosen, task)
        values = miss.predicted.value or 0.0, miss.measured.value or 0.0
        same = math.isclose(*values, rel_tol=_SAME_DIGITS)
        if same or miss.apart <= NOISE_FACTOR * miss.noise:
            agreeing.append(task)
        else:
            misses.append(miss)
    return Held(tuple(misses), tuple(agreeing), missing)


def _miss(merge: Merge, task: str) -> Miss:
    predicted, measured = merge.readings("predicted")[task], merge.measured[task]
    apart = abs((predicted.value or 0.0) - (measured.value or 0.0))
    # An unknown standard error counts as none.
    noise = math.hypot(predicted.stderr or 0.0, measured.stderr or 0.0)
    return Miss(task, predicted, measured, apart, noise)


def _best_of(front: Front, better: Sequence[Ahead]) -> Ahead:
    """Choose the merge that is the best one to take in place of the chosen."""
    Y = front.utilities([found.merge for found in better], "measured")
    best = better[select_by_preference(Y, np.ones(Y.shape[1]))]
    return Ahead(best.merge, best.other, best.tasks, best.blind, len(better) - 1)


def _ahead_of(front: Front, merges: Sequence[Merge], other: Merge) -> list[Ahead]:
    """List the merges that dominate another one; those not measured do not."""
    rows = [other, *merges]
    Y, stderr = front.utilities(rows, "measured"), front.stderrs(rows, "measured")
    found = dominates(Y[1:], stderr[1:], Y[0], stderr[0])
    return [
        _ahead(front, m, other) for m, yes in zip(merges, found, strict=True) if yes
    ]


def _ahead(front: Front, merge: Merge, other: Merge) -> Ahead:
    """Say on which tasks one merge is ahead, by more than the noise that is known."""
    y, y_other = front.utilities([merge, other], "measured")
    stderr, stderr_other = front.stderrs([merge, other], "measured")
    # Task by task: each as a column of its own.
    ahead = dominates(
        y[:, None], stderr[:, None], y_other[:, None], stderr_other[:, None]
    )
    unknown = np.isnan(stderr) & np.isnan(stderr_other)
    tasks = list(front.tasks)
    return Ahead(
        merge,
        other,
        tasks=tuple(t for t, yes in zip(tasks, ahead, strict=True) if yes),
        blind=tuple(t for t, yes in zip(tasks, ahead & unknown, strict=True) if yes),
    )


def _not_measured(front: Front, merge: Merge) -> tuple[str, ...]:
    return tuple(task for task in front.tasks if not merge.is_measured(task))
