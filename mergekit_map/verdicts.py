"""What the numbers of ``front.json`` mean, in plain words.

Three questions: is there a trade-off, is any merge better than what one had before, and
can the chosen point be believed. Dominance is judged on measured values alone, and a
difference counts where it exceeds two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mergekit_map.frontfile import (
    Front,
    in_words,
    listed,
    metrics,
    standard_errors,
    utilities,
)
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


@dataclass(frozen=True, eq=False)
class _Merge:
    """A merge, and how it is called in a sentence."""

    name: str
    content: Mapping[str, Any]  # with coefficients and measured, as in front.json


def verdicts(front: Front) -> list[str]:
    """List the findings, a line each: on trade-off, anchors, and the chosen point."""
    points = [
        _Merge(f"point {index} ({_weights(point)})", point)
        for index, point in enumerate(front["points"])
    ]
    chosen = front["selected"]
    points[chosen] = _Merge(f"the chosen point {chosen}", front["points"][chosen])
    others = [
        _Merge(f"the merge with {_weights(m)}", m) for m in front.get("merges", ())
    ]
    anchors = [_Merge(a["label"], a) for a in front["anchors"]]
    # In the order in which they are named where several will do.
    merges = [points[chosen], *points[:chosen], *points[chosen + 1 :], *others]
    return [
        *_on_tradeoff(front),
        *(line for task in front["tasks"] for line in _on_fit(front, task)),
        *(line for a in anchors for line in _on_anchor(front, a, [*merges, *anchors])),
        *_on_prediction(front, points[chosen]),
        *_on_better_ones(front, points[chosen], merges[1:]),
    ]


def _on_tradeoff(front: Front) -> list[str]:
    points = front["points"]
    found = detect_tradeoff(
        utilities(front, points, "predicted"),
        standard_errors(front, points, "predicted"),
    )
    if found.kind == "trade-off":
        return _on_each_task(front, found)
    if found.kind == "one point":
        tasks = "all tasks" if len(front["tasks"]) > 1 else listed(front["tasks"])
        return [
            f"There is no trade-off: one merge is best on {tasks}: point {found.best}."
        ]
    if found.kind == "within noise":
        text = "the whole front differs by less than the noise on every task"
    else:
        text = f"point {found.best} is within noise of the best on every task"
    return [f"There is no trade-off: as predicted, {text}; take point {found.best}."]


def _on_each_task(front: Front, found: TradeOff) -> list[str]:
    """Say which tasks trade off, from where to where, and which stay out of it."""
    Y = utilities(front, front["points"], "predicted")
    names, ranges, still = [], [], []
    for column, (task, metric) in enumerate(metrics(front).items()):
        best = int(Y[:, column].argmax())
        worst = int(Y[:, column].argmin())
        values = [front["points"][i]["predicted"][task]["value"] for i in (worst, best)]
        if found.trades[column]:
            names.append(task)
            text = f"{task} goes from {values[0]:.4g} to {values[1]:.4g} {metric.unit}"
            ranges.append(f"{text.rstrip()} (best at point {best})")
        else:
            still.append(
                f"{task} stays out of it: it differs by {found.spread[column]:.2g}, "
                f"and noise explains {found.noise[column]:.2g}."
            )
    return [f"{listed(names)} trade off, as predicted: {', '.join(ranges)}.", *still]


def _on_fit(front: Front, task: str) -> list[str]:
    """Say whether the surrogate of a task can be believed, and if not, what to do."""
    fit = front["tasks"][task]["fit"]
    if fit["loo_r2"] is None:
        text = f"The fit of {task} cannot be checked: no merge can be spared for that"
        return [f"{text}; evaluate a few more."]
    if fit["loo_r2"] >= _GOOD_FIT:
        return []
    text = (
        f"Predictions of {task} are poor (R² {fit['loo_r2']:.2f} left out one by one)"
    )
    merges = [*front["points"], *front["anchors"]]
    known = [m["measured"][task]["stderr"] for m in merges]
    noise = [stderr for stderr in known if stderr]
    scatter = fit.get("residual_stderr")
    if noise and scatter and scatter <= float(np.median(noise)):
        return [f"{text}, but no worse than its noise: measure it on more items."]
    if front.get("surrogate") == "residual_gp":
        advice = "search a smaller box, or evaluate more merges"
    else:
        advice = "set 'surrogate: residual_gp', or search a smaller box"
    return [
        f"{text}: a quadratic has the wrong shape for it. Trust what was measured; "
        f"{advice}."
    ]


def _on_anchor(front: Front, anchor: _Merge, merges: Sequence[_Merge]) -> list[str]:
    """Say what dominates an anchor, and whether it dominates the chosen merge."""
    missing = _not_measured(front, anchor)
    if missing:
        return [f"No comparison with {anchor.name}: no value of {listed(missing)}."]
    better = _dominating(front, merges, anchor)
    lines = [f"No measured merge dominates {anchor.name}."]
    if better:
        lines = [_says_dominates(front, better[0], anchor)]
    if _dominating(front, [anchor], merges[0]):
        text = _says_dominates(front, anchor, merges[0])
        lines.append(f"{text} So {anchor.name} is the better choice.")
    return lines


def _on_prediction(front: Front, chosen: _Merge) -> list[str]:
    """Hold what was predicted of the chosen point against what was measured there."""
    missing = _not_measured(front, chosen)
    lines, agreeing = [], []
    for task in front["tasks"]:
        if task in missing:
            continue
        predicted, measured = (
            chosen.content[kind][task] for kind in ("predicted", "measured")
        )
        apart = abs(predicted["value"] - measured["value"])
        noise = math.hypot(*(_known(r["stderr"]) for r in (predicted, measured)))
        same = math.isclose(predicted["value"], measured["value"], rel_tol=_SAME_DIGITS)
        if same or apart <= NOISE_FACTOR * noise:
            agreeing.append(task)
            continue
        by = f"{apart / noise:.1f} standard errors" if noise else f"{apart:.2g}"
        lines.append(
            f"At {chosen.name} {task} was predicted as {in_words(predicted)} and "
            f"measured as {in_words(measured)}, {by} apart: trust the measurement."
        )
    if agreeing:
        tasks = listed(agreeing) if lines or missing else "every task"
        lines.append(
            f"At {chosen.name} predicted and measured agree within {NOISE_FACTOR:g} "
            f"standard errors on {tasks}."
        )
    if missing:
        lines.append(
            f"Not measured at {chosen.name} yet: {listed(missing)}; merging it does so."
        )
    return lines


def _on_better_ones(
    front: Front, chosen: _Merge, merges: Sequence[_Merge]
) -> list[str]:
    """Name the measured merge that is the best one to take in place of the chosen."""
    better = _dominating(front, merges, chosen)
    if not better:
        return []
    Y = utilities(front, [merge.content for merge in better], "measured")
    best = better[select_by_preference(Y, np.ones(Y.shape[1]))]
    more = ["", " So does 1 more.", f" So do {len(better) - 1} more."]
    return [_says_dominates(front, best, chosen) + more[min(len(better) - 1, 2)]]


def _dominating(front: Front, merges: Sequence[_Merge], other: _Merge) -> list[_Merge]:
    """List the merges that dominate another one; those not measured do not."""
    rows = [merge.content for merge in (other, *merges)]
    Y = utilities(front, rows, "measured")
    stderr = standard_errors(front, rows, "measured")
    found = dominates(Y[1:], stderr[1:], Y[0], stderr[0])
    return [merge for merge, yes in zip(merges, found, strict=True) if yes]


def _not_measured(front: Front, merge: _Merge) -> list[str]:
    values = utilities(front, [merge.content], "measured")[0]
    return [t for t, v in zip(front["tasks"], values, strict=True) if np.isnan(v)]


def _says_dominates(front: Front, merge: _Merge, other: _Merge) -> str:
    """Say where one merge is ahead of another, by more than the noise that is known."""
    rows = [merge.content, other.content]
    (y, y_other) = utilities(front, rows, "measured")
    (stderr, stderr_other) = standard_errors(front, rows, "measured")
    # Task by task: each as a column of its own.
    ahead = dominates(
        y[:, None], stderr[:, None], y_other[:, None], stderr_other[:, None]
    )
    unknown = np.isnan(stderr) & np.isnan(stderr_other)
    texts = []
    for (task, metric), told, blind in zip(
        metrics(front).items(), ahead, unknown, strict=True
    ):
        values = [in_words(row["measured"][task]) for row in rows]
        text = f"{values[0]} against {values[1]} {metric.unit}".rstrip()
        lower = "" if metric.higher_is_better else ", lower is better"
        noise = "; standard errors unknown" if blind else ""
        texts += [f"{task} ({text}{lower}{noise})"] if told else []
    by = "" if unknown[ahead].any() else " by more than noise"
    return (
        f"As measured, {merge.name} dominates {other.name}: ahead{by} on "
        f"{listed(texts)}, behind on none."
    )


def _weights(content: Mapping[str, Any]) -> str:
    return ", ".join(f"{n}={v:.4g}" for n, v in content["coefficients"].items())


def _known(stderr: float | None) -> float:
    """Count an unknown standard error as none."""
    return 0.0 if stderr is None or math.isnan(stderr) else stderr
