"""Gains of the chosen merge over the reference points.

Reference points are the base model, the uniform soup, and for each task the parent that
measured best on it. Amounts are positive where the chosen merge is better, in the
tasks' own units. With held-out documents, a gain is what these documents show.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import JsonValue, TypeAdapter

from mergekit_map.results.front import (
    UNKNOWN,
    Front,
    Kind,
    Merge,
    Reading,
    Readings,
)
from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.results.paired import ALPHA, Differences, PairedMerges
from mergekit_map.surrogates.arrays import FloatArray, finite
from mergekit_map.types import BASE, NO_SINGLE_MODEL, SIGNIFICANT, SOUP, Metric

Source: TypeAlias = Literal["held-out", "measured", "predicted"]
Verdict: TypeAlias = Literal["better", "worse", "noise", "unknown"]
_Cell: TypeAlias = tuple[int, int]  # row and column of a comparison
BEST_PARENT = "best parent"
_RIVALS = (BASE, SOUP, BEST_PARENT)


@dataclass(frozen=True)
class Improvement:
    """The improvement of the chosen merge over another one on a task."""

    other: str  # which one: its label
    reading: Reading  # of the other, as measured
    amount: float  # larger is better
    stderr: float | None  # of the amount: item by item where both answered the same
    verdict: Verdict  # of all comparisons of the table together


@dataclass(frozen=True)
class Gains:
    """The chosen merge compared with base, soup and best parents."""

    readings: Mapping[str, Reading]  # of the chosen merge, by task
    sources: Mapping[str, Source]  # how each of them is known
    # By base, soup or best parent, and by task where both are known.
    rivals: Mapping[str, Mapping[str, Improvement]]
    # Share of the best parent's gain over the base; None where noise explains it.
    kept: Mapping[str, float | None]

    def over(self, label: str) -> Mapping[str, Improvement]:
        """Return the improvement over base, soup or best parent; {} if unknown."""
        return self.rivals.get(label, {})

    def content(self) -> dict[str, JsonValue]:
        """Return the comparison as JSON content."""
        content: dict[str, Any] = _FORM.dump_python(self, mode="json")
        rows = content["rivals"].items()
        return content | {"rivals": [{"label": k, "tasks": of} for k, of in rows]}

    def where(self, label: str, verdict: Verdict) -> list[str]:
        """List the tasks on which the chosen merge is better than a rival, or worse."""
        return [t for t, one in self.over(label).items() if one.verdict == verdict]

    def share(self, task: str, value: float | None) -> float | None:
        """Return the share of the best parent's gain over the base that a value has.

        None where noise explains that gain.
        """
        if value is None or self.kept[task] is None:
            return None
        base, best = (self.over(label)[task] for label in (BASE, BEST_PARENT))
        return _share(value, base.reading, best.reading)


_FORM = TypeAdapter(Gains)


def gains(front: Front, *, in_search: bool = False) -> Gains:
    """Compare the chosen merge with base, soup and, on each task, its best parent.

    Held-out documents count where it was measured on them, unless ``in_search``, and
    predictions where it was not measured at all.
    """
    held_out, shown = (set[str](), front) if in_search else on_held_out(front)
    sources: dict[str, Source] = {}
    readings: dict[str, Reading] = {}
    for task in front.tasks:
        kind: Kind = "measured" if shown.chosen.is_measured(task) else "predicted"
        readings[task] = shown.chosen.readings(kind).get(task, UNKNOWN)
        sources[task] = "held-out" if task in held_out else kind
    paired, labels = _paired(shown), [anchor.label for anchor in front.anchors]
    cells: dict[tuple[str, str], _Cell] = {}
    for label, (column, task) in itertools.product(_RIVALS, enumerate(front.tasks)):
        best = best_single(front, task) if label == BEST_PARENT else None
        name = label if best is None else best.label
        if name in labels and np.isfinite(paired.ahead[labels.index(name), column]):
            cells[label, task] = labels.index(name), column
    rivals: dict[str, dict[str, Improvement]] = {}
    verdicts = _verdicts(paired, [*cells.values()])
    for ((label, task), place), verdict in zip(cells.items(), verdicts, strict=True):
        rival = shown.anchors[place[0]]
        rivals.setdefault(label, {})[task] = Improvement(
            other=rival.label or "",
            reading=rival.measured[task],
            amount=float(paired.ahead[place]),
            stderr=finite(float(paired.stderr[place])),
            verdict=verdict,
        )
    return Gains(readings, sources, rivals, _kept(shown, readings, rivals))


def _kept(
    front: Front, readings: Readings, rows: Mapping[str, Mapping[str, Improvement]]
) -> dict[str, float | None]:
    """Return the shares of the best parents' gains over the base that readings keep.

    None where the gain is not significant, by the paired difference.
    """
    kept: dict[str, float | None] = dict.fromkeys(front.tasks)
    base, best = rows.get(BASE, {}), rows.get(BEST_PARENT, {})
    if not (tasks := [task for task in base if task in best]):
        return kept
    labels, columns = [a.label for a in front.anchors], [*front.tasks]
    places = front.anchor_places
    paired = PairedMerges.of(front, places, places[labels.index(BASE)])
    cells = [(labels.index(best[t].other), columns.index(t)) for t in tasks]
    for task, verdict in zip(tasks, _verdicts(paired, cells), strict=True):
        if verdict == "better":
            known = base[task].reading, best[task].reading
            kept[task] = _share(readings[task].value or 0.0, *known)
    return kept


def _share(value: float, base: Reading, best: Reading) -> float:
    """Return the share of a gain over the base; both have values."""
    start = base.value or 0.0
    return (value - start) / ((best.value or 0.0) - start)


def _paired(front: Front) -> PairedMerges:
    """Pair the chosen merge with every reference point, as predicted if need be."""
    chosen = front.chosen
    found = PairedMerges.of(front, front.selected, front.anchor_places)
    values = front.utilities([chosen], "predicted")[0]
    stderrs = front.stderrs([chosen], "predicted")[0].tolist()
    for column, (task, stderr) in enumerate(zip(front.tasks, stderrs, strict=True)):
        if not chosen.is_measured(task):
            found.Y[:, column], found.items[:, column] = values[column], math.inf
            # What its items would say is unknown: no less than those of others.
            found.stderr[:, column] = [
                math.hypot(stderr, errors_of_differences(front, rival, task).max())
                for rival in front.anchors
            ]
    found.stderr[[a.coefficients == chosen.coefficients for a in front.anchors]] = 0
    return found


def _verdicts(paired: PairedMerges, cells: Sequence[_Cell]) -> list[Verdict]:
    """Test which differences at these cells are significant, in either direction.

    All two-sided tests are adjusted together: if merges are equal, the probability of
    any "better" or "worse" is at most 5 %. Without a standard error it is "unknown".
    """
    rows, columns = np.array(cells, np.int_).reshape(-1, 1, 2).T  # (1, n)
    at = rows, columns
    own, other, stderr = paired.Y[at], paired.other[at], paired.stderr[at]
    ahead = np.maximum(own, other), np.minimum(own, other)
    items, answers = paired.items[at], paired.answers[columns]
    found = PairedMerges(*ahead, stderr, items, answers).tested()
    apart = (2 * found.chances <= ALPHA) & (found.scores >= SIGNIFICANT)
    words: tuple[Verdict, ...] = ("unknown", "noise", "better", "worse")
    places = np.select([np.isnan(stderr), ~apart, own > other], [0, 1, 2], 3)
    return [words[place] for place in places[0]]


def on_held_out(front: Front) -> tuple[set[str], Front]:
    """Replace measurements of the chosen merge and of references by held-out ones.

    Returns the tasks of which it has some.
    """
    if (holdout := front.holdout) is None:
        return set(), front
    merges = (front.chosen, *front.anchors)
    places = [holdout.place(merge.coefficients, merge.label) for merge in merges]
    measured = [{} if p is None else holdout.merges[p].measured for p in places]
    tasks = set(measured[0])
    shown = [
        merge.model_copy(
            update={"measured": merge.measured | {t: of.get(t, UNKNOWN) for t in tasks}}
        )
        for merge, of in zip(merges, measured, strict=True)
    ]
    differences = {t: d for t, d in front.differences.items() if t not in tasks}
    rows = [front.selected, *front.anchor_places.tolist()]
    for task in tasks & set(holdout.differences):
        known = holdout.differences[task]
        both = {r: p for r, p in zip(rows, places, strict=True) if p in known.merges}
        if len(both) > 1:
            some = np.array([p for p in both.values() if p is not None])
            stderr = known.between(some[:, None], some)
            differences[task] = Differences.of(
                [*both], stderr, known.items, answers=known.answers
            )
    return tasks, front.with_point(front.selected, shown[0]).model_copy(
        update={"anchors": tuple(shown[1:]), "differences": differences}
    )


@dataclass(frozen=True)
class HeldOutGain:
    """A gain on held-out documents, beside that on the documents of the search."""

    task: str
    held_out: Improvement
    searched: Improvement | None  # None where the search measured no such gain
    # Whether they differ by no more than noise, and a significant one is significant
    # on both; None where the noise is unknown.
    confirmed: bool | None


def held_out_gains(front: Front) -> list[HeldOutGain]:
    """Compare the gains on held-out documents with those of the search."""
    if front.holdout is None:
        return []
    found, before = gains(front), gains(front, in_search=True)
    # Bonferroni's bound for all of these differences between search and held-out.
    most = NormalDist().inv_cdf(1 - ALPHA / 2 / (len(_RIVALS) * len(front.tasks)))
    compared = []
    for label, task in itertools.product((BASE, BEST_PARENT, SOUP), front.tasks):
        new, old = found.over(label).get(task), before.over(label).get(task)
        if new is None or found.sources[task] != "held-out" or new.stderr == 0:
            continue  # the chosen merge is the rival itself, where there is no error
        old, confirmed = old if before.sources[task] == "measured" else None, None
        if old and new.stderr is not None and old.stderr is not None:
            noise = most * math.hypot(new.stderr, old.stderr)
            lost = old.verdict == "better" and new.verdict != "better"
            confirmed = abs(new.amount - old.amount) <= noise and not lost
        compared.append(HeldOutGain(task, new, old, confirmed))
    return compared


def best_single(front: Front, task: str) -> Merge | None:
    """Return the single model that measured best in the search."""
    singles = (a for a in front.anchors if a.label not in NO_SINGLE_MODEL)
    known = [anchor for anchor in singles if anchor.is_measured(task)]
    sign = front.tasks[task].metric.sign
    return max(known, key=lambda a: sign * (a.measured[task].value or 0), default=None)


def errors_of_differences(front: Front, rival: Merge, task: str) -> FloatArray:
    """Return the standard errors of other measured merges minus one; (k,), k >= 1.

    Errors are independent where no items were compared; NaN where none is known.
    """
    if (known := front.differences.get(task)) is not None:
        there = next(i for i, m in enumerate(front.known) if m is rival)
        compared = np.array(known.merges)
        row = known.between(np.full_like(compared, there), compared)
        if (apart := row > 0).any():
            return np.asarray(row[apart])
    stderr = rival.measured[task].stderr
    return np.array([math.sqrt(2) * (math.nan if stderr is None else stderr)])


@dataclass(frozen=True)
class Anchors:
    """Measured values of the reference points by label and task, in the tasks' units.

    ``errors`` are of a merge near by minus the value, NaN where unknown.
    """

    values: Mapping[str, Mapping[str, float]]
    errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)  # of the best minus base

    def reliability(self, task: str, metric: Metric) -> float:
        """Return the share of the best reference's gain over the base that is no noise.

        It is 1 - (standard error / gain)², at least 0; 1 where nothing is known.
        """
        known, noise = self.values.items(), self.noise.get(task, 0.0)
        found = {one: metric.utility(of[task]) for one, of in known if task in of}
        if BASE not in found or len(found) == 1 or math.isnan(noise):
            return 1.0
        gain = max(found.values()) - found[BASE]
        return 1 - (noise / gain) ** 2 if gain > noise else 0.0


def measured_anchors(
    anchors: Mapping[str, Mapping[str, float]], evaluations: Iterable[Evaluation]
) -> Anchors:
    """Read the measurements of the reference points (label to coefficients).

    How the merges differ document by document is not known here: errors are left out.
    The noise is as if documents explained half of the variance.
    """
    seen = by_merge(e for e in evaluations if not e.failed)
    found = {label: seen.get(merge_key(c), {}) for label, c in anchors.items()}
    values = {label: {t: e.value for t, e in of.items()} for label, of in found.items()}
    noise = {task: e.stderr or math.nan for task, e in found.get(BASE, {}).items()}
    return Anchors(values, noise=noise)


def anchor_values(front: Front) -> Anchors:
    """Read the reference values of a front, with the errors of points near them."""
    values: dict[str, dict[str, float]] = {}
    errors: dict[str, dict[str, float]] = {}
    for anchor in front.anchors:
        values[label := anchor.label or ""], errors[label] = {}, {}
        for task, reading in anchor.measured.items():
            if reading.value is not None:
                values[label][task] = reading.value
                # A merge that differs more is not excused by what it differs.
                apart = errors_of_differences(front, anchor, task)
                errors[label][task] = float(apart.min())
    return Anchors(values, errors, {task: _noise(front, task) for task in front.tasks})


def _noise(front: Front, task: str) -> float:
    """Return the standard error of the best reference minus the base, or NaN."""
    labels = [anchor.label for anchor in front.anchors]
    Y = front.utilities(front.anchors, "measured")[:, [*front.tasks].index(task)]
    if BASE not in labels or np.isnan(Y).all():
        return math.nan
    ends = np.array([[np.nanargmax(Y)], [labels.index(BASE)]]) + len(front.points)
    paired = PairedMerges.of(front, *ends)
    return float(paired.stderr[0, [*front.tasks].index(task)])
