"""Findings on a front, as values; ``sentences`` writes them.

Some change a decision: a better merge exists, a gain was not confirmed on held-out
documents, predictions are not reliable, the bounds are too narrow. Predictions that
were made before measuring are compared with the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mergekit_map.optimize.degenerate_front import TradeOff, detect_tradeoff
from mergekit_map.optimize.selection import select_by_preference
from mergekit_map.results.front import (
    Border,
    Ending,
    Front,
    Merge,
    Unfinished,
    n_safe,
)
from mergekit_map.results.holdout import Gain
from mergekit_map.results.multiple_testing import PairedMerges
from mergekit_map.surrogates.arrays import FloatArray

_STDERRS = 1.96  # 95 % of errors lie within so many standard errors
_WORTH_MORE = 0.005  # share of the hypervolume that is worth another search
_SAME_DIGITS = 1e-4  # relative difference that four digits do not show


@dataclass(frozen=True, eq=False)
class Dominance:
    """A merge that is better than the chosen one on some tasks and worse on none."""

    merge: Merge
    tasks: Sequence[str]  # where it is significantly better
    amounts: Sequence[float]  # by how much there; larger is better
    stderrs: Sequence[float]  # of the amounts; NaN where unknown


def dominating_merge(front: Front) -> Dominance | None:
    """Return the best merge that dominates the chosen one, if one does.

    All measured merges, reference points apart, are compared with it and tested
    together: if none is better, one is found with a probability of at most 5 %. Of
    several, the one with the largest sum is returned.
    """
    Y = front.utilities(front.known, "measured")
    rows = np.flatnonzero(np.isfinite(Y).all(axis=1))
    first = len(front.points)
    references = (rows >= first) & (rows < first + len(front.anchors))
    rivals = rows[~references & (rows != front.selected)]
    if front.selected not in rows or not len(rivals):
        return None
    paired = PairedMerges.of(front, rivals, np.full_like(rivals, front.selected))
    found = paired.tested()
    ahead = np.flatnonzero(found.kept & found.better.any(axis=1))
    if not len(ahead):
        return None
    best = ahead[select_by_preference(paired.Y[ahead], np.ones(Y.shape[1]))]
    columns = np.flatnonzero(found.better[best])
    tasks = list(front.tasks)
    return Dominance(
        front.known[rivals[best]],
        [tasks[column] for column in columns],
        paired.ahead[best, columns].tolist(),
        paired.stderr[best, columns].tolist(),
    )


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


@dataclass(frozen=True)
class BrokenPromises:
    """Gains on held-out documents that are not those of the search."""

    gains: Sequence[Gain]


@dataclass(frozen=True)
class FewMerges:
    """Too few fitted merges for a front."""

    fitted: int
    coefficients: int


# Predictions are good if R² over the bounds is 0.9. What is known of it are two
# estimates, by their own standard errors and from merges left out one by one: both are
# below this where it is not, in 9 of 10 cases, and in few others
# (benchmarks/contest_fits.py).
_GOOD_R2 = 0.93
# On the front, predictions may miss by a tenth of its range. Their standard errors are
# not to be believed where both estimates are below 0.75: the fit has the wrong shape.
_GOOD_SHARE, _SHAPELESS_R2 = 0.1, 0.75


@dataclass(frozen=True)
class Predictions:
    """The quality of predictions on the front, where the choice is made."""

    task: str  # the task with the largest error
    error: float | None  # standard error there, as a share of the front's range
    poor: Sequence[str]  # tasks that are predicted poorly elsewhere in the bounds
    shapeless: Sequence[str]  # tasks that are predicted poorly anywhere

    @property
    def known(self) -> bool:
        """Whether anything is known of them."""
        return self.error is not None or bool(self.poor)

    @property
    def reliable(self) -> bool:
        """Whether predictions can be chosen from."""
        near = not self.poor if self.error is None else self.error <= _GOOD_SHARE
        return near and not self.shapeless


@dataclass(frozen=True)
class AtBounds:
    """Points of the front lie at the bounds; better merges may lie beyond."""

    borders: Sequence[Border]


@dataclass(frozen=True)
class PredictionChecks:
    """Predictions that were made before measuring, compared with the measurements."""

    held: int
    count: int


Finding: TypeAlias = (
    Dominance
    | BrokenPromises
    | Unfinished
    | FewMerges
    | Predictions
    | TradeOff
    | AtBounds
    | Ending
    | PredictionChecks
)


def find(front: Front) -> Iterator[Finding]:
    """Yield the findings on a front and its chosen point, most important first."""
    if (better := dominating_merge(front)) is not None:
        yield better
    gains = () if front.holdout is None else front.holdout.gains
    if broken := [gain for gain in gains if gain.kept is False]:
        yield BrokenPromises(broken)
    if front.unfinished is not None:
        yield front.unfinished
    fitted = min(task.fit.n for task in front.tasks.values())
    coefficients = len(front.groups or front.coefficients)
    if fitted < n_safe(coefficients):
        yield FewMerges(fitted, coefficients)
    if front.unfinished is not None and not front.unfinished.fitted:
        return  # nothing was predicted
    trade_off = detect_tradeoff(
        front.utilities(front.points, "predicted"),
        front.stderrs(front.points, "predicted"),
    )
    quality = predictions(front)
    if trade_off.kind != "within noise" and quality.known:
        yield quality
    if trade_off.kind != "trade-off":
        yield trade_off
    if front.border and trade_off.kind != "within noise":
        yield AtBounds(front.border)
    if front.ending is not None:
        yield front.ending
    if held := [error <= _STDERRS for error in prior_predictions(front)]:
        yield PredictionChecks(sum(held), len(held))


def decides(finding: Finding) -> bool:
    """Whether a finding may change a decision."""
    match finding:
        case Predictions():
            return not finding.reliable
        case TradeOff():
            return finding.kind == "within noise"
        case AtBounds():
            return max(end.gain for end in finding.borders) >= _WORTH_MORE
        case Ending() | PredictionChecks():
            return False
    return True


def predictions(front: Front) -> Predictions:
    """Return the quality of the predictions of a front."""
    fits = {task: about.fit for task, about in front.tasks.items()}
    errors = {task: fit.front_error or 0.0 for task, fit in fits.items()}
    r2 = {
        task: max(fit.expected_r2 or -math.inf, fit.loo_r2 or -math.inf)
        for task, fit in fits.items()
    }
    worst = max(errors, key=errors.__getitem__)
    poor, shapeless = (
        [task for task in fits if r2[task] < least]
        for least in (_GOOD_R2, _SHAPELESS_R2)
    )
    return Predictions(worst, fits[worst].front_error, poor, shapeless)
