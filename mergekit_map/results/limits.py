"""The request of a selection: weights and limits of tasks, and the references."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from mergekit_map.config.schema import SelectSpec, share_of
from mergekit_map.errors import ConfigError
from mergekit_map.optimize.scalarization import TIE, Scalarization
from mergekit_map.results.front import Front, Kind
from mergekit_map.results.gains import on_held_out
from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.results.paired import PairedMerges, stderrs_beside
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray
from mergekit_map.types import BASE, NO_SINGLE_MODEL, SIGNIFICANT, Metric
from mergekit_map.utils.text import listed, nearest

MISSED = "misses its limits"
_AT_BEST = 1e-3  # of the range: that a prediction may lack of the best possible value
_Values: TypeAlias = Mapping[str, Mapping[str, float]]  # by label, then by name

# Limits that are mistakes: so many ranges of the models above all of them, as 0.95 for
# 95%; and, from 5 on, so many times the largest loss of a model, as 95 for 95%.
_SUSPICIOUS_MARGIN, _MIN_PERCENTAGE, _ABSURD = 2, 5, 10


@dataclass(frozen=True)
class Anchors:
    """Measured values of the reference points by label and task, in the tasks' units.

    ``errors`` are of a merge near by minus the value, NaN where unknown.
    """

    values: _Values
    errors: _Values = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)  # of the best minus base
    gained: frozenset[str] = frozenset()  # tasks where a point is better than the base

    @classmethod
    def of(cls, front: Front) -> Anchors:
        """Read the reference values of a front, with the errors of points near them."""
        values: dict[str, dict[str, float]] = {}
        errors: dict[str, dict[str, float]] = {}
        for index, anchor in enumerate(front.anchors, start=len(front.points)):
            values[label := anchor.label or ""], errors[label] = {}, {}
            for task, reading in anchor.measured.items():
                if reading.value is not None:
                    values[label][task] = reading.value
                    # A merge that differs more is not excused by what it differs.
                    stderrs = stderrs_beside(front, index, task)
                    errors[label][task] = float(stderrs.min())
        if (base := front.anchor_index(BASE)) is None:
            return cls(values, errors)
        stderr = PairedMerges.of(front, front.anchor_indices, base).stderr
        Y = front.utilities(front.anchors, "measured")
        best = np.where(np.isnan(Y), -np.inf, Y).argmax(axis=0)
        noise = stderr[best, np.arange(len(best))].tolist()
        points = front.measured_points
        better = np.asarray(PairedMerges.of(front, points, base).better.any(axis=0))
        gained = frozenset(itertools.compress(front.tasks, better))
        return cls(values, errors, dict(zip(front.tasks, noise, strict=True)), gained)

    @classmethod
    def measured(cls, *parts: tuple[_Values, Iterable[Evaluation]]) -> Anchors:
        """Read reference points (label to coefficients), each part from its own log.

        How the merges differ document by document is not known here: errors are left
        out. The noise is as if documents explained half of the variance.
        """
        measured: dict[str, Mapping[str, Evaluation]] = {}
        for anchors, evaluations in parts:
            merges = by_merge(e for e in evaluations if not e.failed)
            measured |= {k: merges.get(merge_key(c), {}) for k, c in anchors.items()}
        values = {k: {t: e.value for t, e in of.items()} for k, of in measured.items()}
        stderrs: dict[str, list[float]] = {}
        for task, e in itertools.chain(*(of.items() for of in measured.values())):
            stderrs.setdefault(task, []).extend(filter(None, [e.stderr]))
        # The error of an accuracy of 0 or 1 is 0, and that of others is not far.
        noise = {
            task: e.stderr or min(stderrs[task], default=np.nan)
            for task, e in measured.get(BASE, {}).items()
        }
        return cls(values, noise=noise)

    def reliability(self, task: str, metric: Metric) -> float:
        """Return the share of the best reference's gain over the base that is no noise.

        It is 1 - (standard error / gain)², at least 0; 1 where nothing is known, or a
        point is significantly better than the base.
        """
        if task in self.gained:
            return 1.0
        noise, known = self.noise.get(task, 0.0), self.values.items()
        utilities = {k: metric.utility(of[task]) for k, of in known if task in of}
        if BASE not in utilities or len(utilities) == 1 or np.isnan(noise):
            return 1.0
        gain = max(utilities.values()) - utilities[BASE]
        return 1 - (noise / gain) ** 2 if gain > noise else 0.0


@dataclass(frozen=True)
class Limit:
    """The worst value of a task that is still allowed, in the task's own units."""

    value: float
    source: str = ""  # where it is from, if it was not given as a number


@dataclass(frozen=True, eq=False)
class Request:
    """A selection, with the metrics and the reference points that give it meaning."""

    select: SelectSpec
    metrics: Mapping[str, Metric]  # by task, m of them
    anchors: Anchors

    @classmethod
    def of(cls, front: Front) -> Request:
        """Return the request that a front was chosen by."""
        return cls(front.select, front.metrics, Anchors.of(front))

    def task_weights(self) -> Mapping[str, float]:
        """Return how much tasks count in a choice; those that do not are left out.

        Unless there is a preference, or a point was chosen by its index, tasks with a
        limit are left out and others count by their reliability: noise is nothing to
        gain.
        """
        select, metrics = self.select, self.metrics
        weights = (SelectSpec() if select.knee else select).preference(metrics)
        if select.knee or select.prefer is not None or select.index is not None:
            return weights
        reliability = self.anchors.reliability
        counted = {t: w * reliability(t, metrics[t]) for t, w in weights.items()}
        return {t: w for t, w in counted.items() if w > TIE} or weights

    def weights(self) -> FloatArray:
        """Return how much each task counts; (m,)."""
        counted = self.task_weights()
        return np.array([counted.get(task, 0.0) for task in self.metrics])

    def limits(self) -> dict[str, Limit]:
        """Compute the limits that are required; of several on a task, the strictest.

        A share s of the gain of the best parent is (1 - s) * base + s * best. Raises
        ConfigError where no parent has a gain, or none was measured.
        """
        limits = self.required()
        for task, limit in self._rival_limits():
            utility = self.metrics[task].utility
            if task not in limits or utility(limits[task].value) < utility(limit.value):
                limits[task] = limit
        return limits

    def required(self) -> dict[str, Limit]:
        """Return the limits of single tasks; raises as ``limits``."""
        limits = {}
        for task, required in (self.select.require or {}).items():
            if (share := share_of(required)) is None:
                self._refuse_missing_percent(task, float(required))
                limits[task] = Limit(float(required))
            else:
                base, best = self._base_and_best(task)
                source = f"{100 * share:g}% of the best parent's gain"
                limits[task] = Limit((1 - share) * base + share * best, source)
        return limits

    def lower_bounds(
        self, limits: Mapping[str, Limit], *, measured: bool = False
    ) -> FloatArray:
        """Return the limits as utilities of tasks (m,), -inf where there is none.

        A prediction comes close to the best possible value, and never reaches it.
        """
        lower = []
        for task, metric in self.metrics.items():
            limit = metric.utility(limits[task].value) if task in limits else -np.inf
            worst, best = sorted(map(metric.utility, metric.bounds))
            if limit == best and not measured:
                limit -= _AT_BEST * (best - worst if np.isfinite(worst) else 1.0)
            lower.append(limit)
        return np.array(lower)

    def scalarization(self) -> Scalarization:
        """Return weights and limits as numbers; raises as ``limits``."""
        weights = self.weights()
        relative = weights / weights.max()
        return Scalarization(
            weights=relative / relative.sum(),
            lower=self.lower_bounds(self.limits()),
            achievement=self.select.scalarization == "achievement",
        )

    def _refuse_missing_percent(self, task: str, value: float) -> None:
        """Refuse a limit that none or every merge keeps: 95 or 0.95 for 95%."""
        metric = self.metrics[task]
        limit = metric.utility(value)
        known = self.anchors.values.values()
        measured = [metric.utility(of[task]) for of in known if task in of]
        margin = _SUSPICIOUS_MARGIN * np.ptp(measured) if measured else 0
        far_below = value <= 100 and limit < _ABSURD * min(measured, default=0) < 0
        far_above = 0 < margin < limit - max(measured, default=0)
        out_of_reach = limit > max(map(metric.utility, metric.bounds))
        is_percentage = value >= _MIN_PERCENTAGE and (far_below or out_of_reach)
        is_fraction = 0 < value <= 1 and far_above and max(map(abs, measured)) > 1
        if is_percentage or is_fraction:
            why = "every model and the soup keep" if far_below else "no model is near"
            percentage = value if is_percentage else 100 * value
            raise ConfigError(
                f"require: {why} {task}={value:g}; did you mean {percentage:g}%, a "
                "share of the best parent's gain over the base?"
            )

    def _rival_limits(self) -> Iterator[tuple[str, Limit]]:
        values, errors = self.anchors.values, self.anchors.errors
        for rival in self.select.rivals:
            if rival not in values:
                text = f"not_worse_than: there is no {rival!r} to compare with; "
                raise ConfigError(text + nearest(rival, values))
            for task, metric in self.metrics.items():
                if task not in values[rival]:
                    raise ConfigError(
                        f"not_worse_than: {rival} was not measured on {task}; give "
                        "limits as numbers"
                    )
                stderr = np.nan_to_num(errors.get(rival, {}).get(task, 0.0))
                # Of losses, documents explain nearly all.
                if np.isfinite(metric.bounds).all():
                    noise = self.anchors.noise.get(task, 0.0)
                    stderr = max(stderr, np.nan_to_num(noise))
                value = values[rival][task] - metric.sign * SIGNIFICANT * stderr
                yield task, Limit(value, f"what {rival} has, within noise")

    def _base_and_best(self, task: str) -> tuple[float, float]:
        """Return the values of the base, and of the best parent, which is above it."""
        metric, values = self.metrics[task], self.anchors.values
        parents = [
            readings[task]
            for label, readings in values.items()
            if label not in NO_SINGLE_MODEL and task in readings
        ]
        best = max(parents, key=metric.utility, default=np.nan)
        base = values.get(BASE, {}).get(task, np.nan)
        if not metric.utility(best) > metric.utility(base):
            raise ConfigError(
                f"require: no parent was measured to be better than the base on {task},"
                " so there is no gain to keep a share of; give the limit as a number, "
                "or not-worse-than"
            )
        return base, best


def excess(front: Front, rows: IntArray) -> FloatArray:
    """Return by how much measured merges miss what the selection requires; (r, m).

    In standard errors beyond those of noise: one, or those of a significant loss to a
    rival (the base, if nothing was selected). 0 or less where it is kept. The merges,
    by indices in ``front.all_merges``, are measured on every task.
    """
    return np.fmax(*_excesses(front, rows))


def _excesses(front: Front, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return that below what is required, and that behind the rivals; (r, m) each."""
    select, tasks = front.select, list(front.tasks)
    rivals = select.rivals if select.model_fields_set else (BASE,)
    behind_rivals = np.full((len(rows), len(tasks)), -np.inf)
    for index, merge in enumerate(front.all_merges):
        if merge.label in rivals and merge.is_measured(*tasks):
            z_scores = PairedMerges.of(front, rows, index).z_scores
            np.fmax(behind_rivals, -SIGNIFICANT - z_scores, out=behind_rivals)
    short = shortfall(front, rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        in_stderrs = short / _noise(front, rows)
    return np.where(short > 0, in_stderrs - 1, -np.inf), behind_rivals


def shortfall(front: Front, rows: IntArray) -> FloatArray:
    """Return how far measured merges are below the required values; (r, m)."""
    request = Request.of(front)
    Y = front.utilities([front.all_merges[row] for row in rows], "measured")
    short = request.lower_bounds(request.required(), measured=True) - Y
    return np.where(short > TIE * np.abs(Y), short, 0.0)


def limit_variances(front: Front, rows: IntArray) -> FloatArray:
    """Return of what the variance of measured merges minus a limit is made; (3, r, m).

    Variances of the merge minus the base, of it minus the best parent, and of this one
    minus the base; 0 if unknown. A share s of the parent's gain is the limit (1 - s)
    base + s parent: they count 1 - s, s and -s (1 - s) times. A number is taken for the
    base: s is 0.
    """
    stderrs = np.zeros((3, len(rows), len(front.tasks)))
    if (base := front.anchor_index(BASE)) is not None:
        stderrs[0] = PairedMerges.of(front, rows, base).stderr
        parents = [front.anchor_index(front.best_parent(task)) for task in front.tasks]
        for parent in filter(None, {*parents}):
            columns = [p == parent for p in parents]
            from_parent = PairedMerges.of(front, np.append(rows, base), parent).stderr
            stderrs[1][:, columns] = from_parent[:-1, columns]
            stderrs[2][:, columns] = from_parent[-1, columns]
    return np.nan_to_num(stderrs**2)


def _noise(front: Front, rows: IntArray) -> FloatArray:
    """Return the standard errors of measured merges minus their limits; (r, m)."""
    required = front.select.require or {}
    s = np.array([share_of(required.get(task, 0.0)) or 0.0 for task in front.tasks])
    base, parent, between = limit_variances(front, rows)
    variances = (1 - s) * base + s * parent - s * (1 - s) * between
    return np.asarray(np.sqrt(np.maximum(variances, 0)))


def keep_limits(front: Front, rows: IntArray) -> BoolArray:
    """Return which merges keep what the selection requires; (r,)."""
    return np.asarray(np.max(excess(front, rows), axis=1) <= 0)


def unmet_limits(front: Front, *, predicted: bool = False) -> str:
    """Describe how far the chosen point misses its limits; "" if it keeps them.

    Unless ``predicted``, its measured values count, which miss none by noise alone.
    """
    select, metrics, chosen = front.select, front.metrics, front.chosen
    if not select.limited:
        return ""
    measured = chosen.is_measured(*metrics) and not predicted
    kind: Kind = "measured" if measured else "predicted"
    request = Request.of(front)
    limits = request.required() if measured else request.limits()
    lower = request.lower_bounds(limits, measured=measured)
    short = lower - front.utilities([chosen], kind)[0]
    below, behind = short, np.full_like(short, -np.inf)
    if measured:
        below, behind = np.array(_excesses(front, np.array([front.selected])))[:, 0]
    missed = []
    for column, (task, metric) in enumerate(metrics.items()):
        value = f"{kind} {chosen.readings(kind)[task].value:.4g}"
        if below[column] > 0:
            word = "least" if metric.higher_is_better else "most"
            number = f"{limits[task].value:.4g} {metric.unit}".rstrip()
            limit = ", ".join(filter(None, (number, limits[task].source)))
            how = f"{short[column]:.4g} short"
            missed.append(f"{task} at {word} {limit} ({value}, {how})")
        elif behind[column] > 0:
            limit = f"{task} not worse than {listed(select.rivals)}"
            how = "" if np.isinf(behind[column]) else " by over two standard errors"
            missed.append(f"{limit} ({value}, worse{how})")
    return listed(missed)


def reason(front: Front) -> str:
    """Return in a sentence how the point was chosen."""
    select, merge = front.select, f"merge (point {front.selected})"
    if select.index is not None:
        return f"The {merge} was chosen by its index."
    if unmet := unmet_limits(front):
        if not keep_limits(front, front.measured_points).any():
            merge += " is the nearest to its limits that was found: it"
        advice = "relax a limit, or allow more evaluations"
        return f"The {merge} does not keep {unmet}; {advice}."
    points = front.measured_points
    if not select.limited and len(points) and not keep_limits(front, points).any():
        text = "Every measured merge is worse than the base on some task"
        return f"{text}; the {merge} is the nearest."
    weights = Request.of(front).task_weights()
    counted = listed(f"{task} counts {w:g}" for task, w in weights.items())
    what = f"for its sum of gains on {listed(weights)}"
    if select.prefer is not None:
        what = f"for its weighted sum of gains ({counted})"
    if len(weights) == 1:
        alone = ", the only task that counts" if len(front.tasks) > 1 else ""
        what = f"for its gain on {listed(weights)}{alone}"
    if select.scalarization == "achievement":
        what = f"for its small distance from the best values ({counted})"
    if select.knee:
        what = "as the knee of the front"
    limits = [f"{task}={limit}" for task, limit in (select.require or {}).items()]
    word = "limits" if len(limits) > 1 else "limit"
    kept = f"that keep the {word} {listed(limits)}" if limits else ""
    worse = f"not worse than {listed(select.rivals)}" if select.rivals else ""
    conditions = " ".join(filter(None, (worse, kept)))
    start = f"Of all merges {conditions}, the" if conditions else "The"
    return f"{start} {merge} was chosen {what}."


def limits_in_words(front: Front) -> str:
    """Write whether the chosen merge keeps its limits: ``meets its limit on fr``."""
    chosen, metrics, required = front.chosen, front.metrics, front.select.require
    if unmet := unmet_limits(front):
        on = "" if front.holdout is None else " on the data of the search"
        return f"{MISSED}{on}: {unmet}"
    if not required or not chosen.is_measured(*metrics):
        return ""
    where = _on_held_out_too(front)
    short = shortfall(front, np.array([front.selected]))[0]
    if missed := [
        f"{amount:.4g} short of its limit on {task}"
        for task, amount in zip(metrics, short, strict=True)
        if amount > 1e-4 * abs(chosen.measured[task].value or 0)  # 4 digits are shown
    ]:
        return f"is {listed(missed)}, less than the noise{where}"
    word = "limits" if len(required) > 1 else "limit"
    return f"meets its {word} on {listed(required)}{where}"


def _on_held_out_too(front: Front) -> str:
    """Write on which data the chosen merge keeps its limits; "" without held-out."""
    tasks, held_out = on_held_out(front)
    searched = "" if front.holdout is None else " on the data of the search"
    if not {*(front.select.require or ())} <= {*tasks}:
        return searched
    try:
        unmet = unmet_limits(held_out)
    except ConfigError:  # beside these references a limit cannot be computed
        return f"{searched}; held-out data cannot tell"
    if unmet:
        return f"{searched}; on held-out data it misses {unmet}"
    short = shortfall(held_out, np.array([front.selected])).any()
    kept = "is within the noise of" if short else "meets"
    return f"{searched}; on held-out data it {kept} what is asked"
