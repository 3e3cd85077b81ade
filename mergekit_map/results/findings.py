"""Findings on a front, as sentences, and how these name merges and differences.

Some change a decision: a better merge exists, a gain was not confirmed on held-out
documents, predictions are not reliable, the bounds are too narrow. Predictions that
were made before measuring are compared with the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from mergekit_map.optimize.scalarization import (
    TradeOff,
    detect_tradeoff,
    select_point,
)
from mergekit_map.results.front import Ending, Front, Merge
from mergekit_map.results.gains import HeldOutGain, held_out_gains
from mergekit_map.results.limits import keep_limits
from mergekit_map.results.paired import PairedMerges
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import BASE, SOUP
from mergekit_map.utils.text import listed, percent

_STDERRS = 1.96  # 95 % of errors lie within so many standard errors
_WORTH_MORE = 0.005  # share of the hypervolume that is worth another search
_SAME_DIGITS = 1e-4  # relative difference that four digits do not show
_LEAST_MERGES = 2  # for each parameter of a plane
_DECIMALS = 6  # the most that are written
_NAMED = 4  # coefficients that are named one by one
Difference: TypeAlias = tuple[float, float]  # larger is better; its standard error


def dominating_merge(front: Front) -> tuple[Merge, dict[str, Difference]] | None:
    """Return the best merge that dominates the chosen one, if one does.

    With it come its differences where it is significantly better. All measured merges
    that keep the limits, reference points apart, are compared with the chosen one and
    tested together: if none is better, one is found with a probability of at most 5 %.
    Of several, the one with the largest sum is returned.
    """
    excluded = np.append(front.anchor_indices, front.selected)
    rivals = np.setdiff1d(front.complete, excluded)
    rivals = rivals[keep_limits(front, rivals)]
    if front.selected not in front.complete or not len(rivals):
        return None
    paired = PairedMerges.of(front, rivals, front.selected)
    tested = paired.test()
    better = tested.better & ~np.isnan(paired.stderr)
    dominating = np.flatnonzero(tested.not_behind & better.any(axis=1))
    if not len(dominating):
        return None
    best = dominating[select_point(paired.Y[dominating], np.ones(len(front.tasks)))]
    differences, stderrs = paired.difference[best].tolist(), paired.stderr[best]
    rows = zip(front.tasks, differences, stderrs.tolist(), better[best], strict=True)
    better_on = {task: (amount, stderr) for task, amount, stderr, is_ in rows if is_}
    return front.all_merges[rivals[best]], better_on


def prior_predictions(front: Front) -> Iterator[float]:
    """Yield the errors of predictions made before measuring, in standard errors.

    Of the standard error of a measurement only the noise between merges counts, where
    it is known. Infinite where neither is known.
    """
    for task in front.tasks:
        for merge, noise in zip(front.all_merges, nuggets(front, task), strict=True):
            predicted, measured = (merge.foretold or {}).get(task), merge.measured[task]
            if predicted is None or predicted.value is None or measured.value is None:
                continue
            noise = (measured.stderr or 0.0) if math.isnan(noise) else float(noise)
            stderr = math.hypot(predicted.stderr or 0.0, noise)
            error = abs(predicted.value - measured.value)
            if math.isclose(predicted.value, measured.value, rel_tol=_SAME_DIGITS):
                yield 0.0
            else:
                yield error / stderr if stderr else math.inf


def nuggets(front: Front, task: str) -> FloatArray:
    """Return an upper bound of the noise that each merge (k,) has on its own.

    It is the semivariance at the shortest distance, which geostatistics calls the
    nugget: for merges with nearly equal errors, the shape of the metric can only
    enlarge it. NaN where no merges were compared by items.
    """
    nuggets = np.full(len(front.all_merges), np.nan)
    if (differences := front.differences.get(task)) is None:
        return nuggets
    stderr = differences.matrix
    # One without any difference is the same model under another name.
    smallest = np.where(stderr > 0, stderr, np.inf).min(axis=1) / math.sqrt(2)
    smallest[np.isinf(smallest)] = 0
    nuggets[list(differences.merges)] = smallest
    return nuggets


# Predictions are good if R² over the bounds is 0.9. What is known of it are two
# estimates, by their own standard errors and from merges left out one by one: both are
# below this where it is not, in 9 of 10 cases, and in few others
# (benchmarks/contest_fits.py).
_GOOD_R2 = 0.93
# On the front, predictions may miss by a tenth of its range. Their standard errors are
# not to be believed where both estimates are below 0.75: the fit has the wrong shape.
_GOOD_SHARE, _SHAPELESS_R2 = 0.1, 0.75


def findings_in_words(front: Front) -> tuple[list[str], list[str]]:
    """Write the findings that may change a decision, and the others as details."""
    findings = [*find(front)]
    decisive = [text for text, decides in findings if decides]
    return decisive, [text for text, decides in findings if not decides]


def find(front: Front) -> Iterator[tuple[str, bool]]:
    """Yield the findings, most important first, and whether they may decide."""
    if (better := dominating_merge(front)) is not None:
        yield _dominance(front, *better), True
    unconfirmed = [g for g in held_out_gains(front) if g.confirmed is False]
    if unconfirmed:
        yield _unconfirmed(unconfirmed), True
    if (search := front.unfinished) is not None:
        text = (
            f"The search is not finished: {search.measured} of at most {search.most} "
            "merges are measured."
        )
        yield text, True
    n_fitted = min(task.fit.n for task in front.tasks.values())
    if n_fitted < _LEAST_MERGES * (len(front.axes) + 1):
        text = (
            f"Only {n_fitted} merges were measured for {len(front.axes)} coefficients: "
            "predictions are a guess."
        )
        yield text if search else f"{text} Allow more evaluations.", True
    yield from _prediction_findings(front)


def _prediction_findings(front: Front) -> Iterator[tuple[str, bool]]:
    utilities = front.utilities(front.points, "predicted")
    trade_off = detect_tradeoff(utilities, front.stderrs(front.points, "predicted"))
    # The errors of a poor fit are not the noise of the documents.
    predicted_equal = trade_off.kind == "within noise"
    within_noise = predicted_equal and not _differ_as_measured(front)
    if not within_noise and (quality := prediction_quality(front)) is not None:
        yield quality
    if within_noise or not (predicted_equal or trade_off.kind == "trade-off"):
        yield _no_trade_off(trade_off), within_noise
    if not within_noise and (border := border_in_words(front)):
        yield border, _gain_beyond(front) >= _WORTH_MORE
    if front.ending is not None:
        yield _ending(front.ending), False
    if errors := [*prior_predictions(front)]:
        within_95 = sum(error <= _STDERRS for error in errors)
        text = (
            f"{within_95} of {len(errors)} values that were predicted before measuring "
            "lay within the 95 % interval of the prediction."
        )
        yield text, False


def _differ_as_measured(front: Front) -> bool:
    """Whether some measured points of the front differ by more than noise."""
    points = front.complete[front.complete < len(front.points)]
    first, second = np.meshgrid(points, points)
    paired = PairedMerges.of(front, first.ravel(), second.ravel())
    return bool((paired.test().better & ~np.isnan(paired.stderr)).any())


def poor_tasks(front: Front, min_r2: float = _GOOD_R2) -> list[str]:
    """List the tasks that are predicted worse than this R², by both estimates of it."""
    fits = {name: task.fit for name, task in front.tasks.items()}
    return [
        task
        for task, fit in fits.items()
        if max(fit.expected_r2 or -math.inf, fit.loo_r2 or -math.inf) < min_r2
    ]


def prediction_quality(front: Front) -> tuple[str, bool] | None:
    """Write how good predictions are on the front, where the choice is made.

    With it comes whether they are not reliable; None where nothing is known of them.
    """
    fits = {name: task.fit for name, task in front.tasks.items()}
    worst = max(fits, key=lambda task: fits[task].front_error or 0.0)
    error = fits[worst].front_error
    poor, shapeless = poor_tasks(front), poor_tasks(front, _SHAPELESS_R2)
    if error is None and not poor:
        return None
    if error is None or shapeless:
        text = f"Predictions of {listed(shapeless or poor)} are not reliable"
    else:
        share = f"{percent(error)} of a task's range there (worst task: {worst})"
        if error <= _GOOD_SHARE:
            others = f" Elsewhere they are poorer ({listed(poor)})." if poor else ""
            return f"Predictions on the front are good to ± {share}.{others}", False
        text = f"Predictions on the front are good only to ± {share}"
    remedy = "let the search finish" if front.unfinished else "allow more evaluations"
    return f"{text}: trust measured merges, or {remedy}.", True


def _dominance(front: Front, merge: Merge, better: Mapping[str, Difference]) -> str:
    texts = [f"{task} ({difference(*amount)})" for task, amount in better.items()]
    name = merge_name(front, merge, start=True)
    elsewhere = ""
    if len(front.tasks) > len(better):
        elsewhere = ", with no significant difference elsewhere"
    index = next((i for i, p in enumerate(front.points) if p is merge), None)
    command = "" if index is None else f": choose it with `--index {index}`"
    return f"{name} is better on {listed(texts)}{elsewhere}{command}."


def _unconfirmed(gains: Sequence[HeldOutGain]) -> str:
    texts = []
    for gain in gains:
        new, old = gain.held_out, gain.searched or gain.held_out
        now, before = (difference(one.amount, one.stderr) for one in (new, old))
        over = f"on {gain.task} over {called(new.other)}"
        texts.append(f"{now} {over} (in the search {before})")
    return f"Not confirmed on held-out documents: {listed(texts)}."


def _no_trade_off(trade_off: TradeOff) -> str:
    best = f"point {trade_off.best}"
    if trade_off.kind == "within noise":
        text = "The points of the front differ by less than the noise on every task"
        return f"{text}: measure more documents."
    if trade_off.kind == "one point":
        return f"As predicted, {best} is best on every task: no trade-off."
    error = "more than the error of predictions"
    return f"No point is predicted to be better than {best} by {error}."


def border_in_words(front: Front) -> str:
    """Write, for whoever searches, that points lie at a bound; "" if none do yet."""
    if front.unfinished is not None or not front.border:
        return ""
    reached = " or ".join(f"{one.coefficient}={one.end:g}" for one in front.border)
    bounds = wider_bounds(front)
    command = f": search again with `--bounds {bounds}`" if bounds else ""
    return (
        f"Some points of the front lie at a bound of the weights ({reached}). Wider "
        f"bounds may enlarge the front by {percent(_gain_beyond(front))} "
        f"(hypervolume){command}."
    )


def _gain_beyond(front: Front) -> float:
    """Return the predicted share that wider bounds add to the hypervolume."""
    return max((border.gain for border in front.border), default=0.0)


def wider_bounds(front: Front) -> str:
    """Write the bounds of another search as ``--bounds`` takes them, if it is worth it.

    Those that are and stay 0 and 1 are left out. Bounds of nested searches are of
    groups of models.
    """
    if front.groups or front.unfinished or _gain_beyond(front) < _WORTH_MORE:
        return ""
    values = {name: [*bounds] for name, bounds in front.coefficients.items()}
    for border in front.border:
        values[border.coefficient].append(border.beyond)
    return ",".join(
        f"{name}={min(bounds):.12g}:{max(bounds):.12g}"
        for name, bounds in values.items()
        if {*bounds} != {0, 1}
    )


def _ending(ending: Ending) -> str:
    merges = f"{ending.evaluations} of at most {ending.allowed} merges"
    if ending.trusted:
        return f"The search converged after {merges}."
    return (
        f"The search used its budget: {merges}, those of the front apart. More might "
        f"enlarge the front by up to {percent(ending.hope)} (hypervolume)."
    )


def called(label: str) -> str:
    """Return the name of a reference point in a sentence."""
    return f"the {label}" if label in {BASE, SOUP} else label


def merge_name(front: Front, merge: Merge, *, start: bool = False) -> str:
    """Return the name of a merge in a sentence, or at its ``start``.

    That of a reference point with the same coefficients, its few weights, or else its
    number.
    """
    same = (a for a in front.anchors if a.coefficients == merge.coefficients)
    label = merge.label or next((anchor.label for anchor in same), None)
    name = called(label) if label is not None else f"the merge {_weights(front, merge)}"
    return f"The {name[4:]}" if start and name.startswith("the ") else name


def _weights(front: Front, merge: Merge) -> str:
    if len(merge.coefficients) <= _NAMED:
        weights = merge.coefficients.items()
        return ", ".join(f"{name}={round(v, 2) + 0:g}" for name, v in weights)
    for index, point in enumerate(front.points):
        if point is merge:
            return f"of point {index}"
    return merge.weights


def difference(amount: float, stderr: float | None) -> str:
    """Write ``+0.085 ± 0.012``, with two digits of the standard error."""
    if not stderr or not math.isfinite(stderr):
        return f"{amount + 0:+.2g}"
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    if digits > _DECIMALS:
        return f"{amount:+.1e} ± {stderr:.1e}"
    # A sum with 0 has no sign where it is 0.
    return f"{round(amount, digits) + 0:+.{digits}f} ± {stderr:.{digits}f}"
