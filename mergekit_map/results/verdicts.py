"""What the numbers of a front mean, in sentences.

Three questions: is there a trade-off, is any merge better than what one had before, and
can the chosen point be believed. Dominance is judged on measured values alone, and a
difference counts where it exceeds two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from mergekit_map.results.front import Front, Merge
from mergekit_map.search.selection import select_by_preference
from mergekit_map.search.tradeoff import (
    NOISE_FACTOR,
    TradeOff,
    detect_tradeoff,
    dominates,
)
from mergekit_map.words import listed

# R² left out one by one, below which a surrogate is said to be wrong.
_GOOD_FIT = 0.9
_SAME_DIGITS = 1e-4  # relative difference that four digits do not show


def verdicts_in_words(front: Front) -> tuple[str, ...]:
    """Judge trade-off, fits, anchors and the chosen point, in a few sentences each."""
    others = [point for point in front.points if point is not front.chosen]
    # In the order in which they are named where several will do.
    merges = [*others, *front.merges]
    known = [front.chosen, *merges, *front.anchors]
    return (
        *_on_tradeoff(front),
        *(line for task in front.tasks for line in _on_fit(front, task)),
        *(line for a in front.anchors for line in _on_anchor(front, a, known)),
        *_on_prediction(front),
        *_on_better(front, merges),
    )


def _on_tradeoff(front: Front) -> Iterator[str]:
    found = detect_tradeoff(
        front.utilities(front.points, "predicted"),
        front.stderrs(front.points, "predicted"),
    )
    best = f"point {found.best}"
    tasks = "all tasks" if len(front.tasks) > 1 else listed(front.tasks)
    match found.kind:
        case "trade-off":
            yield from _trading(front, found)
            return
        case "one point":
            text = f"one merge is best on {tasks}: {best}"
        case "within noise":
            text = "as predicted, the whole front differs by less than the noise on "
            text += f"every task; take {best}"
        case "one best":
            text = f"as predicted, {best} is within noise of the best on every task; "
            text += f"take {best}"
    yield f"There is no trade-off: {text}."


def _trading(front: Front, found: TradeOff) -> list[str]:
    """Say which tasks trade off, from where to where, and which stay out of it."""
    Y = front.utilities(front.points, "predicted")
    names, ranges, still = [], [], []
    for column, (task, metric) in enumerate(front.metrics.items()):
        best = int(Y[:, column].argmax())
        worst = int(Y[:, column].argmin())
        start, end = (metric.utility(Y[row, column]) for row in (worst, best))
        if found.trades[column]:
            names.append(task)
            text = f"{task} goes from {start:.4g} to {end:.4g} {metric.unit}"
            ranges.append(f"{text.rstrip()} (best at point {best})")
        else:
            still.append(
                f"{task} stays out of it: it differs by {found.spread[column]:.2g}, "
                f"and noise explains {found.noise[column]:.2g}."
            )
    return [f"{listed(names)} trade off, as predicted: {', '.join(ranges)}.", *still]


def _on_fit(front: Front, task: str) -> Iterator[str]:
    """Say that a surrogate cannot be believed, and what to do."""
    fit = front.tasks[task].fit
    if fit.loo_r2 is None:
        yield (
            f"The fit of {task} cannot be checked: no merge can be spared for that; "
            "evaluate a few more."
        )
    elif fit.loo_r2 < _GOOD_FIT:
        text = (
            f"Predictions of {task} are poor (R² {fit.loo_r2:.2f} left out one by one)"
        )
        known = [m.measured[task].stderr for m in (*front.points, *front.anchors)]
        noise, scatter = [stderr for stderr in known if stderr], fit.residual_stderr
        if noise and scatter and scatter <= float(np.median(noise)):
            yield f"{text}, but no worse than its noise: measure it on more items."
            return
        advice = "set 'surrogate: residual_gp', or search a smaller box"
        if front.surrogate == "residual_gp":
            advice = "search a smaller box, or evaluate more merges"
        yield (
            f"{text}: a quadratic has the wrong shape for it. Trust what was measured; "
            f"{advice}."
        )


def _on_anchor(front: Front, anchor: Merge, merges: Sequence[Merge]) -> Iterator[str]:
    """Say what dominates an anchor, and whether it dominates the chosen merge."""
    name = _name(front, anchor)
    if missing := _not_measured(front, anchor):
        yield f"No comparison with {name}: no value of {listed(missing)}."
        return
    better = _ahead_of(front, merges, anchor)
    if better:
        yield _dominates(front, better[0], anchor)
    else:
        yield f"No measured merge dominates {name}."
    if _ahead_of(front, [anchor], front.chosen):
        text = _dominates(front, anchor, front.chosen)
        yield f"{text} So {name} is the better choice."


def _on_prediction(front: Front) -> Iterator[str]:
    """Hold what was predicted of the chosen point against what was measured."""
    chosen, agreeing = front.chosen, []
    name, missing = _name(front, chosen), _not_measured(front, chosen)
    for task in front.tasks:
        if task in missing:
            continue
        predicted, measured = chosen.readings("predicted")[task], chosen.measured[task]
        values = predicted.value or 0.0, measured.value or 0.0
        apart = abs(values[0] - values[1])
        # An unknown standard error counts as none.
        noise = math.hypot(predicted.stderr or 0.0, measured.stderr or 0.0)
        same = math.isclose(*values, rel_tol=_SAME_DIGITS)
        if same or apart <= NOISE_FACTOR * noise:
            agreeing.append(task)
            continue
        by = f"{apart / noise:.1f} standard errors" if noise else f"{apart:.2g}"
        yield (
            f"At {name} {task} was predicted as {predicted} and measured as "
            f"{measured}, {by} apart: trust the measurement."
        )
    if agreeing:
        every = len(agreeing) == len(front.tasks)
        yield (
            f"At {name} predicted and measured agree within {NOISE_FACTOR:g} standard "
            f"errors on {'every task' if every else listed(agreeing)}."
        )
    if missing:
        yield f"Not measured at {name} yet: {listed(missing)}; merging it does so."


def _on_better(front: Front, merges: Sequence[Merge]) -> Iterator[str]:
    """Name the best one of the merges to take in place of the chosen."""
    better = _ahead_of(front, merges, front.chosen)
    if better:
        Y = front.utilities(better, "measured")
        best = better[select_by_preference(Y, np.ones(Y.shape[1]))]
        others = len(better) - 1
        more = ["", " So does 1 more.", f" So do {others} more."][min(others, 2)]
        yield _dominates(front, best, front.chosen) + more


def _ahead_of(front: Front, merges: Sequence[Merge], other: Merge) -> list[Merge]:
    """List the merges that dominate another one; those not measured do not."""
    rows = [other, *merges]
    Y, stderr = front.utilities(rows, "measured"), front.stderrs(rows, "measured")
    found = dominates(Y[1:], stderr[1:], Y[0], stderr[0])
    return [merge for merge, yes in zip(merges, found, strict=True) if yes]


def _dominates(front: Front, merge: Merge, other: Merge) -> str:
    """Say on which tasks one merge is ahead, by more than the noise that is known."""
    Y = front.utilities([merge, other], "measured")
    stderr = front.stderrs([merge, other], "measured")
    # Task by task: each as a column of its own.
    ahead = dominates(*(row[:, None] for row in (Y[0], stderr[0], Y[1], stderr[1])))
    blind = ahead & np.isnan(stderr).all(axis=0)
    texts = []
    for column, (task, metric) in enumerate(front.metrics.items()):
        if ahead[column]:
            values = merge.measured[task], other.measured[task]
            text = f"{values[0]} against {values[1]} {metric.unit}".rstrip()
            lower = "" if metric.higher_is_better else ", lower is better"
            noise = "; standard errors unknown" if blind[column] else ""
            texts.append(f"{task} ({text}{lower}{noise})")
    by = "" if blind.any() else " by more than noise"
    return (
        f"As measured, {_name(front, merge)} dominates {_name(front, other)}: "
        f"ahead{by} on {listed(texts)}, behind on none."
    )


def _not_measured(front: Front, merge: Merge) -> list[str]:
    return [task for task in front.tasks if not merge.is_measured(task)]


def _name(front: Front, merge: Merge) -> str:
    """Call a merge what a sentence calls it."""
    if merge.label is not None:
        return merge.label
    for index, point in enumerate(front.points):
        if point is merge:
            chosen = index == front.selected
            name = f"point {index}"
            return f"the chosen {name}" if chosen else f"{name} ({merge.weights})"
    return f"the merge with {merge.weights}"
