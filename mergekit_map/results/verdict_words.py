"""Verdicts as sentences."""

from __future__ import annotations

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


def _in_words(front: Front, verdict: Verdict) -> list[str]:
    match verdict:
        case TradeOff(kind="trade-off"):
            return _trading(front, verdict)
        case TradeOff():
            return [_no_tradeoff(front, verdict)]
        case PoorFit():
            return [_poor_fit(front, verdict)]
        case AnchorCompared():
            return _anchor(front, verdict)
        case Held():
            return _held(front, verdict)
        case Ahead():
            more = ["", " So does 1 more.", f" So do {verdict.others} more."]
            return [_dominates(front, verdict) + more[min(verdict.others, 2)]]


def _no_tradeoff(front: Front, found: TradeOff) -> str:
    if found.kind == "one point":
        tasks = "all tasks" if len(front.tasks) > 1 else listed(front.tasks)
        return (
            f"There is no trade-off: one merge is best on {tasks}: point {found.best}."
        )
    if found.kind == "within noise":
        text = "the whole front differs by less than the noise on every task"
    else:
        text = f"point {found.best} is within noise of the best on every task"
    return f"There is no trade-off: as predicted, {text}; take point {found.best}."


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


def _poor_fit(front: Front, found: PoorFit) -> str:
    """Say that a surrogate cannot be believed, and what to do."""
    if found.loo_r2 is None:
        text = f"The fit of {found.task} cannot be checked"
        return f"{text}: no merge can be spared for that; evaluate a few more."
    text = (
        f"Predictions of {found.task} are poor (R² {found.loo_r2:.2f} left out one by "
        "one)"
    )
    if found.noisy:
        return f"{text}, but no worse than its noise: measure it on more items."
    if front.surrogate == "residual_gp":
        advice = "search a smaller box, or evaluate more merges"
    else:
        advice = "set 'surrogate: residual_gp', or search a smaller box"
    return (
        f"{text}: a quadratic has the wrong shape for it. Trust what was measured; "
        f"{advice}."
    )


def _anchor(front: Front, found: AnchorCompared) -> list[str]:
    name = _name(front, found.anchor)
    if found.missing:
        return [f"No comparison with {name}: no value of {listed(found.missing)}."]
    lines = [f"No measured merge dominates {name}."]
    if found.dominated is not None:
        lines = [_dominates(front, found.dominated)]
    if found.dominates_chosen is not None:
        text = _dominates(front, found.dominates_chosen)
        lines.append(f"{text} So {name} is the better choice.")
    return lines


def _held(front: Front, found: Held) -> list[str]:
    chosen = _name(front, front.chosen)
    lines = []
    for miss in found.misses:
        by = f"{miss.apart:.2g}"
        if miss.noise:
            by = f"{miss.apart / miss.noise:.1f} standard errors"
        lines.append(
            f"At {chosen} {miss.task} was predicted as {miss.predicted} and measured "
            f"as {miss.measured}, {by} apart: trust the measurement."
        )
    if found.agreeing:
        all_of_them = not lines and not found.missing
        tasks = "every task" if all_of_them else listed(found.agreeing)
        lines.append(
            f"At {chosen} predicted and measured agree within {NOISE_FACTOR:g} "
            f"standard errors on {tasks}."
        )
    if found.missing:
        missing = listed(found.missing)
        lines.append(f"Not measured at {chosen} yet: {missing}; merging it does so.")
    return lines


def _dominates(front: Front, found: Ahead) -> str:
    texts = []
    for task in found.tasks:
        metric = front.tasks[task].metric
        values = found.merge.measured[task], found.other.measured[task]
        text = f"{values[0]} against {values[1]} {metric.unit}".rstrip()
        lower = "" if metric.higher_is_better else ", lower is better"
        noise = "; standard errors unknown" if task in found.blind else ""
        texts.append(f"{task} ({text}{lower}{noise})")
    by = "" if found.blind else " by more than noise"
    return (
        f"As measured, {_name(front, found.merge)} dominates "
        f"{_name(front, found.other)}: ahead{by} on {listed(texts)}, behind on none."
    )


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
