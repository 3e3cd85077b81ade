"""Diagnostics of a finished front, as values; ``narrative`` writes the sentences.

They answer five questions: is there a trade-off, why did the search end, are the
predictions reliable, do better merges lie outside the bounds, and is any merge better
than the reference points. Predictions that were made before measuring are compared
with the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from mergekit_map.optimize.degenerate_front import (
    NOISE_FACTOR,
    TradeOff,
    detect_tradeoff,
)
from mergekit_map.optimize.selection import select_by_preference
from mergekit_map.results.dominance import Dominance, DominanceTest
from mergekit_map.results.front import (
    Border,
    Ending,
    Front,
    Merge,
    Reading,
    Readings,
    Unfinished,
    n_safe,
)
from mergekit_map.surrogates.arrays import FloatArray

NOMINAL, STDERRS = 0.95, 1.96  # such a share lies within so many standard errors
SAME_DIGITS = 1e-4  # relative difference that four digits do not show


@dataclass(frozen=True, eq=False)
class PriorPrediction:
    """A prediction that was made before the merge was measured."""

    merge: Merge
    task: str
    foretold: Reading
    measured: Reading
    errors: float | None  # standard errors apart; None where none is known

    @property
    def within_95(self) -> bool:
        """Whether the measurement lies within the 95 % interval of the prediction."""
        value = self.measured.value or 0.0
        same = math.isclose(self.foretold.value or 0.0, value, rel_tol=SAME_DIGITS)
        return same or (self.errors is not None and self.errors <= STDERRS)


def foretold(merge: Merge) -> Readings:
    """Return the prediction made before a merge was measured."""
    return merge.foretold or merge.readings("predicted")


def prior_predictions(front: Front) -> Iterator[PriorPrediction]:
    """List the predictions that were made before measuring, merge by merge."""
    noise = {task: own_noise(front, task) for task in front.tasks}
    for place, merge in enumerate(front.known):
        for task, before in (merge.foretold or {}).items():
            after = merge.measured[task]
            if before.value is None or after.value is None:
                continue
            apart = abs(before.value - after.value)
            stderr = stderr_of_miss(before, after, float(noise[task][place]))
            yield PriorPrediction(
                merge, task, before, after, apart / stderr if stderr else None
            )


def stderr_of_miss(before: Reading, after: Reading, own: float) -> float:
    """Return the standard error of a prediction minus the measurement.

    Without records per item (``own`` is NaN), the whole standard error of the
    measurement counts.
    """
    alone = (after.stderr or 0.0) if math.isnan(own) else own
    return math.hypot(before.stderr or 0.0, alone)


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


# Predictions are good if R² over the box is 0.9. What is known of it are two estimates,
# by their own standard errors and from merges left out one by one: both are below this
# where it is not, in 9 of 10 cases, and in few others (benchmarks/contest_fits.py).
_GOOD_R2 = 0.93
# Share of a task's range that a prediction may miss by and still be one.
_GOOD_SHARE = 0.1
# The scatter of a few degrees of freedom is up to half as large again by chance.
_CHANCE_SCATTER = 1.5


@dataclass(frozen=True)
class PoorFit:
    """A surrogate that is not reliable, or that cannot be checked."""

    task: str
    box: bool  # whether it is poor on the whole box, where R² is
    expected_r2: float | None  # by its own standard errors
    loo_r2: float | None  # None where no merge can be spared to check it
    error: float | None  # left out one by one, as a share of the range
    front_error: float | None  # share of the range near the front; None if good there
    noisy: bool | None  # whether noise alone explains it; None if that cannot be told


@dataclass(frozen=True, eq=False)
class AnchorCompared:
    """A reference point compared with all measured merges."""

    anchor: Merge
    missing: Sequence[str]  # tasks that it was not measured on; nothing else then
    dominated: Dominance | None = None
    nearly: Dominance | None = None  # what would dominate it, if nothing does
    dominates_chosen: Dominance | None = None


@dataclass(frozen=True)
class PredictionError:
    """The difference between a prediction and a measurement."""

    apart: float
    noise: float  # standard error of that
    share: float | None  # of the range of what was measured


@dataclass(frozen=True)
class PredictionCheck:
    """The prediction for the chosen point, compared with its measurement."""

    misses: Mapping[str, PredictionError]
    agreeing: Sequence[str]
    missing: Sequence[str]


@dataclass(frozen=True)
class AtBound:
    """Points of the front at the bounds; better merges may lie beyond."""

    border: Border


@dataclass(frozen=True)
class SearchEnd:
    """The reason why the search ended, and the accuracy of the front."""

    ending: Ending


@dataclass(frozen=True)
class FewMerges:
    """Too few fitted merges for a front."""

    fitted: int
    coefficients: int


@dataclass(frozen=True)
class PriorPredictionChecks:
    """The share of predictions made before measuring that came true."""

    held: int
    count: int


Verdict: TypeAlias = (
    Unfinished
    | TradeOff
    | SearchEnd
    | FewMerges
    | PoorFit
    | PriorPredictionChecks
    | AtBound
    | AnchorCompared
    | PredictionCheck
    | Dominance
)


def diagnose(front: Front) -> list[Verdict]:
    """List the diagnostics of a front.

    They concern trade-off, end, fits, bounds, reference points and the chosen point.
    """
    # In the order in which they are named where several will do.
    merges = [p for p in front.points if p is not front.chosen] + [*front.merges]
    known = [front.chosen, *merges, *front.anchors]
    pairs = [(one, other) for other in front.anchors for one in known]
    pairs += [(one, front.chosen) for one in (*merges, *front.anchors)]
    whole = {id(merge) for merge in known if not _not_measured(front, merge)}
    family = DominanceTest.of(
        front,
        [(a, b) for a, b in pairs if a is not b and {id(a), id(b)} <= whole],
    )
    begun = [] if front.unfinished is None else [front.unfinished]
    compared = [_on_anchor(family, anchor, known) for anchor in front.anchors]
    better = list(_on_better(family, merges))
    if begun and not begun[0].fitted:  # nothing was predicted
        return [*begun, *_on_number(front), *compared, *better]
    return [
        *begun,
        detect_tradeoff(
            front.utilities(front.points, "predicted"),
            front.stderrs(front.points, "predicted"),
        ),
        *([] if front.ending is None else [SearchEnd(front.ending)]),
        *_on_number(front),
        *(found for task in front.tasks for found in _on_fit(front, task)),
        *_on_prior_predictions(front),
        *map(AtBound, front.border),
        *compared,
        _on_prediction(front),
        *better,
    ]


def diagnose_each_point(front: Front) -> Iterator[tuple[Front, list[Verdict]]]:
    """Yield the diagnostics of a front with each of its points as the chosen one.

    Points that were not measured on every task are compared with no merge, so they
    share all other diagnostics.
    """
    shared: list[Verdict] = []
    for index, point in enumerate(front.points):
        chosen = front.model_copy(update={"selected": index})
        if not _not_measured(front, point):
            yield chosen, diagnose(chosen)
            continue
        shared = shared or diagnose(chosen)
        own = _on_prediction(chosen)
        yield chosen, [own if isinstance(f, PredictionCheck) else f for f in shared]


def _on_fit(front: Front, task: str) -> Iterator[PoorFit]:
    fit = front.tasks[task].fit
    known = [r2 for r2 in (fit.expected_r2, fit.loo_r2) if r2 is not None]
    box = max(known, default=-math.inf) < _GOOD_R2
    near = fit.front_error
    if near is not None and near <= _GOOD_SHARE:
        near = None
    if box or near is not None:
        noisy = _explained_by_noise(front, task)
        yield PoorFit(task, box, fit.expected_r2, fit.loo_r2, fit.error, near, noisy)


def _on_number(front: Front) -> Iterator[FewMerges]:
    d = len(front.groups or front.coefficients)
    fitted = min(task.fit.n for task in front.tasks.values())
    if fitted < n_safe(d):
        yield FewMerges(fitted, d)


def _on_prior_predictions(front: Front) -> Iterator[PriorPredictionChecks]:
    if held := [test.within_95 for test in prior_predictions(front)]:
        yield PriorPredictionChecks(sum(held), len(held))


def _explained_by_noise(front: Front, task: str) -> bool | None:
    """Return whether the noise of single merges explains the residuals of a fit.

    The standard errors of values do not contain that noise: they come from the
    documents, which are the same for all merges. False where only they are known.
    """
    scatter = front.tasks[task].fit.residual_stderr
    if scatter is None:
        return False
    between = own_noise(front, task)
    if np.isfinite(between).any():
        return scatter <= _CHANCE_SCATTER * float(np.nanmedian(between))
    known = [stderr for m in front.known if (stderr := m.measured[task].stderr)]
    return None if known and scatter <= float(np.median(known)) else False


def _on_anchor(
    family: DominanceTest, anchor: Merge, known: Sequence[Merge]
) -> AnchorCompared:
    front = family.front
    if missing := _not_measured(front, anchor):
        return AnchorCompared(anchor, missing)
    better = next(family.dominating(known, anchor), None)
    nearly = family.nearest(known, anchor) if better is None else None
    worse = next(family.dominating([anchor], front.chosen), None)
    return AnchorCompared(anchor, (), better, nearly, worse)


def _on_prediction(front: Front) -> PredictionCheck:
    missing = _not_measured(front, front.chosen)
    misses, agreeing = {}, []
    for task in [task for task in front.tasks if task not in missing]:
        miss = _miss(front, task)
        if miss is None:
            agreeing.append(task)
        else:
            misses[task] = miss
    return PredictionCheck(misses, agreeing, missing)


def _miss(front: Front, task: str) -> PredictionError | None:
    """Return how far the chosen point lies from its prediction; None if it does not."""
    predicted, measured = foretold(front.chosen)[task], front.chosen.measured[task]
    values = predicted.value or 0.0, measured.value or 0.0
    own = float(own_noise(front, task)[front.selected])
    noise, apart = stderr_of_miss(predicted, measured, own), abs(values[0] - values[1])
    share = _share_of_range(front, task, apart)
    # An error bar so wide that nothing contradicts it is no agreement.
    excused = share is None or share < _GOOD_SHARE or apart <= NOISE_FACTOR * own
    if (apart <= NOISE_FACTOR * noise and excused) or math.isclose(
        *values, rel_tol=SAME_DIGITS
    ):
        return None
    return PredictionError(apart, noise, share)


def _share_of_range(front: Front, task: str, apart: float) -> float | None:
    values = [v for m in front.known if (v := m.measured[task].value) is not None]
    width = max(values) - min(values)
    return apart / width if len(values) > 2 and width > 0 else None


def _on_better(family: DominanceTest, merges: Sequence[Merge]) -> Iterator[Dominance]:
    front = family.front
    if better := [*family.dominating(merges, front.chosen)]:
        Y = front.utilities([found.merge for found in better], "measured")
        best = better[select_by_preference(Y, np.ones(Y.shape[1]))]
        yield replace(best, others=len(better) - 1)


def _not_measured(front: Front, merge: Merge) -> list[str]:
    return [task for task in front.tasks if not merge.is_measured(task)]
