"""What the numbers of a front mean, as findings; ``verdict_words`` says them.

Three questions: is there a trade-off, is any merge better than what one had before, and
can the chosen point be believed. Dominance is judged on measured values alone, and a
difference counts where it exceeds two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from mergekit_map.results.front import Front, Merge
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
    noisy: bool  # whether noise alone explains it


@dataclass(frozen=True, eq=False)
class Ahead:
    """One merge is as good as another on all tasks, and better on some."""

    merge: Merge
    other: Merge
    tasks: Mapping[str, bool]  # on which it is better, and whether the noise is known
    others: int = 0  # merges besides that are ahead as well


@dataclass(frozen=True, eq=False)
class AnchorCompared:
    """An anchor held against all that was measured."""

    anchor: Merge
    missing: Sequence[str]  # tasks that it was not measured on; nothing else then
    dominated: Ahead | None = None
    dominates_chosen: Ahead | None = None


@dataclass(frozen=True)
class Held:
    """What was predicted of the chosen point, held against what was measured."""

    misses: Mapping[str, tuple[float, float]]  # how far apart, and the noise of that
    agreeing: Sequence[str]
    missing: Sequence[str]


Verdict: TypeAlias = TradeOff | PoorFit | AnchorCompared | Held | Ahead


def judge(front: Front) -> list[Verdict]:
    """List the findings on trade-off, fits, anchors, and the chosen point."""
    # In the order in which they are named where several will do.
    merges = [p for p in front.points if p is not front.chosen] + [*front.merges]
    known = [front.chosen, *merges, *front.anchors]
    return [
        detect_tradeoff(
            front.utilities(front.points, "predicted"),
            front.stderrs(front.points, "predicted"),
        ),
        *(found for task in front.tasks for found in _on_fit(front, task)),
        *(_on_anchor(front, anchor, known) for anchor in front.anchors),
        _on_prediction(front),
        *_on_better(front, merges),
    ]


def _on_fit(front: Front, task: str) -> Iterator[PoorFit]:
    fit = front.tasks[task].fit
    if fit.loo_r2 is None or fit.loo_r2 < _GOOD_FIT:
        known = [m.measured[task].stderr for m in (*front.points, *front.anchors)]
        noise, scatter = [stderr for stderr in known if stderr], fit.residual_stderr
        noisy = bool(noise and scatter and scatter <= float(np.median(noise)))
        yield PoorFit(task, fit.loo_r2, noisy)


def _on_anchor(front: Front, anchor: Merge, merges: Sequence[Merge]) -> AnchorCompared:
    if missing := _not_measured(front, anchor):
        return AnchorCompared(anchor, missing)
    better = _ahead_of(front, merges, anchor)
    worse = _ahead_of(front, [anchor], front.chosen)
    return AnchorCompared(anchor, (), next(better, None), next(worse, None))


def _on_prediction(front: Front) -> Held:
    missing = _not_measured(front, front.chosen)
    misses, agreeing = {}, []
    for task in [task for task in front.tasks if task not in missing]:
        predicted = front.chosen.readings("predicted")[task]
        measured = front.chosen.measured[task]
        values = predicted.value or 0.0, measured.value or 0.0
        apart = abs(values[0] - values[1])
        # An unknown standard error counts as none.
        noise = math.hypot(predicted.stderr or 0.0, measured.stderr or 0.0)
        same = math.isclose(*values, rel_tol=_SAME_DIGITS)
        if same or apart <= NOISE_FACTOR * noise:
            agreeing.append(task)
        else:
            misses[task] = apart, noise
    return Held(misses, agreeing, missing)


def _on_better(front: Front, merges: Sequence[Merge]) -> Iterator[Ahead]:
    if better := [*_ahead_of(front, merges, front.chosen)]:
        Y = front.utilities([found.merge for found in better], "measured")
        best = better[select_by_preference(Y, np.ones(Y.shape[1]))]
        yield replace(best, others=len(better) - 1)


def _ahead_of(front: Front, merges: Sequence[Merge], other: Merge) -> Iterator[Ahead]:
    rows = [other, *merges]
    Y, stderr = front.utilities(rows, "measured"), front.stderrs(rows, "measured")
    found = dominates(Y[1:], stderr[1:], Y[0], stderr[0])
    for row in map(int, np.flatnonzero(found) + 1):
        # Task by task: each as a column of its own.
        one, second = ((Y[i, :, None], stderr[i, :, None]) for i in (row, 0))
        ahead = dominates(*one, *second)
        unknown = np.isnan(stderr[row]) & np.isnan(stderr[0])
        tasks = zip(front.tasks, ahead, unknown, strict=True)
        better = {task: not blind for task, yes, blind in tasks if yes}
        yield Ahead(rows[row], other, better)


def _not_measured(front: Front, merge: Merge) -> list[str]:
    return [task for task in front.tasks if not merge.is_measured(task)]
