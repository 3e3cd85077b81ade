"""Findings on a front, as sentences, and how these name merges and differences.

Some change a decision: a better merge exists, a gain was not confirmed on held-out
documents, predictions are not reliable, the bounds are too narrow. Predictions that
were made before measuring are compared with the measurements.
"""

from __future__ import annotations

import itertools
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
    others = np.append(front.anchor_places, front.selected)
    rivals = np.setdiff1d(front.complete, others)
    rivals = rivals[keep_limits(front, rivals)]
    if front.selected not in front.complete or not len(rivals):
        return None
    paired = PairedMerges.of(front, rivals, front.selected)
    found = paired.tested()
    better = found.better & ~np.isnan(paired.stderr)
    ahead = np.flatnonzero(found.kept & better.any(axis=1))
    if not len(ahead):
        return None
    best = ahead[select_point(paired.Y[ahead], np.ones(len(front.tasks)))]
    cells = zip(paired.ahead[best].tolist(), paired.stderr[best].tolist(), strict=True)
    ahead_on = dict(zip(front.tasks, cells, strict=True))
    tasks = itertools.compress(front.tasks, better[best])
    return front.known[rivals[best]], {task: ahead_on[task] for task in tasks}


def prior_predictions(front: Front) -> Iterator[float]:
    """Yield the errors of predictions made before measuring, in standard errors.

    Of the standard error of a measurement only the noise between merges counts, where
    it is known. Infinite where neither is known.
    """
    for task in front.tasks:
        for merge, noise in zip(front.known, own_noise(front, task), strict=True):
            before, after = (merge.foretold or {}).get(task), merge.measured[task]
            if before is None or before.value is None or after.value is None:
                continue
            own = (after.stderr or 0.0) if math.isnan(noise) else float(noise)
            stderr = math.hypot(before.stderr or 0.0, own)
            same = math.isclose(before.value, after.value, rel_tol=_SAME_DIGITS)
            error = abs(before.value - after.value)
            yield 0.0 if same else error / stderr if stderr else math.inf


def own_noise(front: Front, task: str) -> FloatArray:
    """Return an upper bound of the noise that each merge (k,) has on its own.

    It is the semivariance at the shortest distance, which geostatistics calls the
    nugget: for merges with nearly equal errors, the shape of the metric can only
    enlarge it. NaN where no merges were compared by items.
    """
    found = np.full(len(front.known), np.nan)
    if (known := front.differences.get(task)) is None:
        return found
    apart = known.square
    # One without any difference is the same model under another name.
    least = np.where(apart > 0, apart, np.inf).min(axis=1) / math.sqrt(2)
    least[np.isinf(least)] = 0
    found[list(known.merges)] = least
    return found


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
    found = [*find(front)]
    decisive = [text for text, decides in found if decides]
    return decisive, [text for text, decides in found if not decides]


def find(front: Front) -> Iterator[tuple[str, bool]]:
    """Yield the findings, most important first, and whether they may decide."""
    if (better := dominating_merge(front)) is not None:
        yield _dominance(front, *better), True
    broken = [g for g in held_out_gains(front) if g.confirmed is False]
    if broken:
        yield _broken(broken), True
    if (search := front.unfinished) is not None:
        text = (
            f"The search is not finished: {search.measured} of at most {search.most} "
            "merges are measured."
        )
        yield text, True
    fitted = min(task.fit.n for task in front.tasks.values())
    if fitted < _LEAST_MERGES * (len(front.axes) + 1):
        text = (
            f"Only {fitted} merges were measured for {len(front.axes)} coefficients: "
            "predictions are a guess."
        )
        yield text if search else f"{text} Allow more evaluations.", True
    yield from _of_predictions(front)


def _of_predictions(front: Front) -> Iterator[tuple[str, bool]]:
    utilities = front.utilities(front.points, "predicted")
    trade_off = detect_tradeoff(utilities, front.stderrs(front.points, "predicted"))
    # The errors of a poor fit are not the noise of the documents.
    unclear = trade_off.kind == "within noise"
    in_noise = unclear and not _differ_as_measured(front)
    if not in_noise and (quality := prediction_quality(front)) is not None:
        yield quality
    if in_noise or not (unclear or trade_off.kind == "trade-off"):
        yield _no_trade_off(trade_off), in_noise
    if not in_noise and (border := border_in_words(front)):
        yield border, _beyond(front) >= _WORTH_MORE
    if front.ending is not None:
        yield _ending(front.ending), False
    if errors := [*prior_predictions(front)]:
        held = sum(error <= _STDERRS for error in errors)
        text = (
            f"{held} of {len(errors)} values that were predicted before measuring lay "
            "within the 95 % interval of the prediction."
        )
        yield text, False


def _differ_as_measured(front: Front) -> bool:
    """Whether some measured points of the front differ by more than noise."""
    points = front.complete[front.complete < len(front.points)]
    ones, others = np.meshgrid(points, points)
    paired = PairedMerges.of(front, ones.ravel(), others.ravel())
    return bool((paired.tested().better & ~np.isnan(paired.stderr)).any())


def poor_tasks(front: Front, least: float = _GOOD_R2) -> list[str]:
    """List the tasks that are predicted worse than this R², by both estimates of it."""
    fits = {task: about.fit for task, about in front.tasks.items()}
    return [
        task
        for task, fit in fits.items()
        if max(fit.expected_r2 or -math.inf, fit.loo_r2 or -math.inf) < least
    ]


def prediction_quality(front: Front) -> tuple[str, bool] | None:
    """Write how good predictions are on the front, where the choice is made.

    With it comes whether they are not reliable; None where nothing is known of them.
    """
    fits = {task: about.fit for task, about in front.tasks.items()}
    worst = max(fits, key=lambda task: fits[task].front_error or 0.0)
    error = fits[worst].front_error
    poor, shapeless = poor_tasks(front), poor_tasks(front, _SHAPELESS_R2)
    if error is None and not poor:
        return None
    if error is None or shapeless:
        text = f"Predictions of {listed(shapeless or poor)} are not reliable"
    else:
        known = f"{percent(error)} of a task's range there (worst task: {worst})"
        if error <= _GOOD_SHARE:
            rest = f" Elsewhere they are poorer ({listed(poor)})." if poor else ""
            return f"Predictions on the front are good to ± {known}.{rest}", False
        text = f"Predictions on the front are good only to ± {known}"
    more = "let the search finish" if front.unfinished else "allow more evaluations"
    return f"{text}: trust measured merges, or {more}.", True


def _dominance(front: Front, merge: Merge, better: Mapping[str, Difference]) -> str:
    texts = [f"{task} ({difference(*amount)})" for task, amount in better.items()]
    name = merge_name(front, merge, start=True)
    others = len(front.tasks) > len(better)
    rest = ", with no significant difference elsewhere" if others else ""
    point = next((i for i, p in enumerate(front.points) if p is merge), None)
    how = "" if point is None else f": choose it with `--index {point}`"
    return f"{name} is better on {listed(texts)}{rest}{how}."


def _broken(gains: Sequence[HeldOutGain]) -> str:
    texts = []
    for gain in gains:
        new, old = gain.held_out, gain.searched or gain.held_out
        now, before = (difference(one.amount, one.stderr) for one in (new, old))
        over = f"on {gain.task} over {called(new.other)}"
        texts.append(f"{now} {over} (in the search {before})")
    return f"Not confirmed on held-out documents: {listed(texts)}."


def _no_trade_off(found: TradeOff) -> str:
    if found.kind == "within noise":
        text = "The points of the front differ by less than the noise on every task"
        return f"{text}: measure more documents."
    if found.kind == "one point":
        return f"As predicted, point {found.best} is best on every task: no trade-off."
    error = "more than the error of predictions"
    return f"No point is predicted to be better than point {found.best} by {error}."


def border_in_words(front: Front) -> str:
    """Write, for whoever searches, that points lie at a bound; "" if none do yet."""
    if front.unfinished is not None or not front.border:
        return ""
    at = " or ".join(f"{end.coefficient}={end.end:g}" for end in front.border)
    bounds = wider_bounds(front)
    how = f": search again with `--bounds {bounds}`" if bounds else ""
    return (
        f"Some points of the front lie at a bound of the weights ({at}). Wider bounds "
        f"may enlarge the front by {percent(_beyond(front))} (hypervolume){how}."
    )


def _beyond(front: Front) -> float:
    """Return the predicted share that wider bounds add to the hypervolume."""
    return max((end.gain for end in front.border), default=0.0)


def wider_bounds(front: Front) -> str:
    """Write the bounds of another search as ``--bounds`` takes them, if it is worth it.

    Those that are and stay 0 and 1 are left out. Bounds of nested searches are of
    groups of models.
    """
    if front.groups or front.unfinished or _beyond(front) < _WORTH_MORE:
        return ""
    bounds = {name: [*ends] for name, ends in front.coefficients.items()}
    for end in front.border:
        bounds[end.coefficient].append(end.beyond)
    return ",".join(
        f"{name}={min(ends):.12g}:{max(ends):.12g}"
        for name, ends in bounds.items()
        if {*ends} != {0, 1}
    )


def _ending(found: Ending) -> str:
    merges = f"{found.evaluations} of at most {found.allowed} merges"
    if found.trusted:
        return f"The search converged after {merges}."
    return (
        f"The search used its budget: {merges}, those of the front apart. More might "
        f"enlarge the front by up to {percent(found.hope)} (hypervolume)."
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
        short = (f"{n}={round(v, 2) + 0:g}" for n, v in merge.coefficients.items())
        return ", ".join(short)
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
