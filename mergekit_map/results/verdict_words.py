"""Verdicts as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mergekit_map.results.front import Front, Merge
from mergekit_map.results.verdicts import (
    Ahead,
    AnchorCompared,
    Held,
    PoorFit,
    Verdict,
    judge,
)
from mergekit_map.search.tradeoff import NOISE_FACTOR, TradeOff
from mergekit_map.words import listed


def verdicts_in_words(front: Front) -> tuple[str, ...]:
    """Judge a front and say the findings, a sentence or two each."""
    return tuple(line for found in judge(front) for line in _in_words(front, found))


def _in_words(front: Front, verdict: Verdict) -> Iterator[str]:
    match verdict:
        case TradeOff(kind="trade-off"):
            yield from _trading(front, verdict)
        case TradeOff():
            yield f"There is no trade-off: {_no_tradeoff(front, verdict)}."
        case PoorFit():
            yield _poor_fit(front, verdict)
        case AnchorCompared():
            yield from _anchor(front, verdict)
        case Held():
            yield from _held(front, verdict)
        case Ahead():
            more = ["", " So does 1 more.", f" So do {verdict.others} more."]
            yield _dominates(front, verdict) + more[min(verdict.others, 2)]


def _no_tradeoff(front: Front, found: TradeOff) -> str:
    best = f"point {found.best}"
    if found.kind == "one point":
        tasks = "all tasks" if len(front.tasks) > 1 else listed(front.tasks)
        return f"one merge is best on {tasks}: {best}"
    text = f"{best} is within noise of the best on every task"
    if found.kind == "within noise":
        text = "the whole front differs by less than the noise on every task"
    return f"as predicted, {text}; take {best}"


def _trading(front: Front, found: TradeOff) -> list[str]:
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


def _poor_fit(front: Front, found: PoorFit) -> str:
    if found.loo_r2 is None:
        text = f"The fit of {found.task} cannot be checked"
        return f"{text}: no merge can be spared for that; evaluate a few more."
    text = (
        f"Predictions of {found.task} are poor (R² {found.loo_r2:.2f} left out one by "
        "one)"
    )
    if found.noisy:
        return f"{text}, but no worse than its noise: measure it on more items."
    advice = "set 'surrogate: residual_gp', or search a smaller box"
    if front.surrogate == "residual_gp":
        advice = "search a smaller box, or evaluate more merges"
    return (
        f"{text}: a quadratic has the wrong shape for it. Trust what was measured; "
        f"{advice}."
    )


def _anchor(front: Front, found: AnchorCompared) -> Iterator[str]:
    name = _name(front, found.anchor)
    if found.missing:
        yield f"No comparison with {name}: no value of {listed(found.missing)}."
    elif found.dominated is None:
        yield f"No measured merge dominates {name}."
    else:
        yield _dominates(front, found.dominated)
    if found.dominates_chosen is not None:
        text = _dominates(front, found.dominates_chosen)
        yield f"{text} So {name} is the better choice."


def _held(front: Front, found: Held) -> Iterator[str]:
    chosen, name = front.chosen, _name(front, front.chosen)
    for task, (apart, noise) in found.misses.items():
        predicted, measured = chosen.readings("predicted")[task], chosen.measured[task]
        by = f"{apart / noise:.1f} standard errors" if noise else f"{apart:.2g}"
        yield (
            f"At {name} {task} was predicted as {predicted} and measured as "
            f"{measured}, {by} apart: trust the measurement."
        )
    if found.agreeing:
        all_of_them = len(found.agreeing) == len(front.tasks)
        tasks = "every task" if all_of_them else listed(found.agreeing)
        yield (
            f"At {name} predicted and measured agree within {NOISE_FACTOR:g} standard "
            f"errors on {tasks}."
        )
    if found.missing:
        missing = listed(found.missing)
        yield f"Not measured at {name} yet: {missing}; merging it does so."


def _dominates(front: Front, found: Ahead) -> str:
    texts = []
    for task, noise_is_known in found.tasks.items():
        metric = front.tasks[task].metric
        values = found.merge.measured[task], found.other.measured[task]
        text = f"{values[0]} against {values[1]} {metric.unit}".rstrip()
        lower = "" if metric.higher_is_better else ", lower is better"
        noise = "" if noise_is_known else "; standard errors unknown"
        texts.append(f"{task} ({text}{lower}{noise})")
    by = " by more than noise" if all(found.tasks.values()) else ""
    return (
        f"As measured, {_name(front, found.merge)} dominates "
        f"{_name(front, found.other)}: ahead{by} on {listed(texts)}, behind on none."
    )


def _name(front: Front, merge: Merge) -> str:
    if merge.label is not None:
        return merge.label
    for index, point in enumerate(front.points):
        if point is merge:
            chosen = index == front.selected
            name = f"point {index}"
            return f"the chosen {name}" if chosen else f"{name} ({merge.weights})"
    return f"the merge with {merge.weights}"
