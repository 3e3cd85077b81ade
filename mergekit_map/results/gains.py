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
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import JsonValue, TypeAdapter

from mergekit_map.results.front import UNKNOWN, Front, Merge, Reading, Readings
from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.results.paired import ALPHA, Differences, PairedMerges
from mergekit_map.surrogates.arrays import FloatArray, finite
from mergekit_map.types import BASE, NO_SINGLE_MODEL, SIGNIFICANT, SOUP, Metric

Source: TypeAlias = Literal["held-out", "measured", "predicted"]
Verdict: TypeAlias = Literal["better", "worse", "noise", "unknown"]
_Cell: TypeAlias = tuple[int, int]  # row of a reference point, column of a task
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
        rivals = [{"label": label, "tasks": tasks} for label, tasks in rows]
        return content | {"rivals": rivals}

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
    held_out, measured = (set[str](), front) if in_search else on_held_out(front)
    sources: dict[str, Source] = {}
    readings: dict[str, Reading] = {}
    for task in front.tasks:
        readings[task], kind = measured.chosen.best_known(task)
        sources[task] = "held-out" if task in held_out else kind
    paired = _pair_with_anchors(measured)
    cells = _rival_cells(front, paired)
    verdicts = _verdicts(paired, [*cells.values()])
    rivals: dict[str, dict[str, Improvement]] = {}
    for ((label, task), cell), verdict in zip(cells.items(), verdicts, strict=True):
        rival = measured.anchors[cell[0]]
        rivals.setdefault(label, {})[task] = Improvement(
            other=rival.label or "",
            reading=rival.measured[task],
            amount=float(paired.difference[cell]),
            stderr=finite(float(paired.stderr[cell])),
            verdict=verdict,
        )
    return Gains(readings, sources, rivals, _kept(measured, readings, rivals))


def _rival_cells(front: Front, paired: PairedMerges) -> dict[tuple[str, str], _Cell]:
    """Find base, soup and best parent of every task, where both have a value."""
    labels = [anchor.label for anchor in front.anchors]
    cells: dict[tuple[str, str], _Cell] = {}
    for rival, (column, task) in itertools.product(_RIVALS, enumerate(front.tasks)):
        best = best_single(front, task) if rival == BEST_PARENT else None
        label = rival if best is None else best.label
        if label in labels:
            cell = labels.index(label), column
            if np.isfinite(paired.difference[cell]):
                cells[rival, task] = cell
    return cells


def _kept(
    front: Front, readings: Readings, rivals: Mapping[str, Mapping[str, Improvement]]
) -> dict[str, float | None]:
    """Return the shares of the best parents' gains over the base that readings keep.

    None where the gain is not significant, by the paired difference.
    """
    kept: dict[str, float | None] = dict.fromkeys(front.tasks)
    base, best = rivals.get(BASE, {}), rivals.get(BEST_PARENT, {})
    index = front.anchor_index(BASE)
    if index is None or not (tasks := [task for task in base if task in best]):
        return kept
    labels, columns = [a.label for a in front.anchors], [*front.tasks]
    paired = PairedMerges.of(front, front.anchor_indices, index)
    cells = [(labels.index(best[t].other), columns.index(t)) for t in tasks]
    for task, verdict in zip(tasks, _verdicts(paired, cells), strict=True):
        if verdict == "better":
            value = readings[task].value or 0.0
            kept[task] = _share(value, base[task].reading, best[task].reading)
    return kept


def _share(value: float, base: Reading, best: Reading) -> float:
    """Return the share of a gain over the base; both have values."""
    base_value = base.value or 0.0
    return (value - base_value) / ((best.value or 0.0) - base_value)


def _pair_with_anchors(front: Front) -> PairedMerges:
    """Pair the chosen merge with every reference point, as predicted if need be."""
    chosen = front.chosen
    paired = PairedMerges.of(front, front.selected, front.anchor_indices)
    values = front.utilities([chosen], "predicted")[0]
    stderrs = front.stderrs([chosen], "predicted")[0].tolist()
    for column, (task, stderr) in enumerate(zip(front.tasks, stderrs, strict=True)):
        if not chosen.is_measured(task):
            paired.Y[:, column], paired.items[:, column] = values[column], math.inf
            # What its items would say is unknown: no less than those of others.
            paired.stderr[:, column] = [
                math.hypot(stderr, errors_of_differences(front, rival, task).max())
                for rival in front.anchors
            ]
    paired.stderr[[a.coefficients == chosen.coefficients for a in front.anchors]] = 0
    return paired


def _verdicts(paired: PairedMerges, cells: Sequence[_Cell]) -> list[Verdict]:
    """Test which differences at these cells are significant, in either direction.

    All two-sided tests are adjusted together: if merges are equal, the probability of
    any "better" or "worse" is at most 5 %. Without a standard error it is "unknown".
    """
    rows, columns = np.array(cells, np.int_).reshape(-1, 1, 2).T  # (1, n)
    cell = rows, columns
    Y, other, stderr = paired.Y[cell], paired.other[cell], paired.stderr[cell]
    items, answers = paired.items[cell], paired.answers[columns]
    # Two-sided: the larger value against the smaller one, at half of the level.
    larger, smaller = np.maximum(Y, other), np.minimum(Y, other)
    pairs = PairedMerges(larger, smaller, stderr, items, answers)
    significant = (2 * pairs.p_values <= ALPHA) & (pairs.z_scores >= SIGNIFICANT)
    verdicts: tuple[Verdict, ...] = ("unknown", "noise", "better", "worse")
    choices = np.select([np.isnan(stderr), ~significant, other < Y], [0, 1, 2], 3)
    return [verdicts[choice] for choice in choices[0]]


def on_held_out(front: Front) -> tuple[set[str], Front]:
    """Replace measurements of the chosen merge and of references by held-out ones.

    Returns the tasks of which it has some.
    """
    if (holdout := front.holdout) is None:
        return set(), front
    merges = (front.chosen, *front.anchors)
    indices = [*map(holdout.index, merges)]
    measured = [{} if i is None else holdout.merges[i].measured for i in indices]
    tasks = set(measured[0])
    replaced = []
    for merge, readings in zip(merges, measured, strict=True):
        new = merge.measured | {task: readings.get(task, UNKNOWN) for task in tasks}
        replaced.append(merge.model_copy(update={"measured": new}))
    differences = {t: d for t, d in front.differences.items() if t not in tasks}
    in_front = [front.selected, *front.anchor_indices.tolist()]
    for task in tasks & set(holdout.differences):
        known = holdout.differences[task]
        pairs = zip(in_front, indices, strict=True)
        compared = {i: j for i, j in pairs if j is not None and j in known.merges}
        if len(compared) > 1:
            held_out = np.array([*compared.values()])
            stderr = known.between(held_out[:, None], held_out)
            differences[task] = Differences.of(
                [*compared], stderr, known.items, answers=known.answers
            )
    chosen, *anchors = replaced
    return tasks, front.with_point(front.selected, chosen).model_copy(
        update={"anchors": tuple(anchors), "differences": differences}
    )


def best_single(front: Front, task: str) -> Merge | None:
    """Return the single model that measured best in the search."""
    singles = (a for a in front.anchors if a.label not in NO_SINGLE_MODEL)
    measured = [single for single in singles if single.is_measured(task)]
    sign = front.tasks[task].metric.sign
    values = [sign * (single.measured[task].value or 0) for single in measured]
    return measured[int(np.argmax(values))] if measured else None


def errors_of_differences(front: Front, rival: Merge, task: str) -> FloatArray:
    """Return the standard errors of other measured merges minus one; (k,), k >= 1.

    Errors are independent where no items were compared; NaN where none is known.
    """
    if (differences := front.differences.get(task)) is not None:
        index = next(i for i, m in enumerate(front.all_merges) if m is rival)
        compared = np.array(differences.merges)
        stderrs = differences.between(np.full_like(compared, index), compared)
        if (stderrs > 0).any():
            return np.asarray(stderrs[stderrs > 0])
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
        noise, known = self.noise.get(task, 0.0), self.values.items()
        utilities = {k: metric.utility(of[task]) for k, of in known if task in of}
        if BASE not in utilities or len(utilities) == 1 or math.isnan(noise):
            return 1.0
        gain = max(utilities.values()) - utilities[BASE]
        return 1 - (noise / gain) ** 2 if gain > noise else 0.0


def measured_anchors(
    anchors: Mapping[str, Mapping[str, float]], evaluations: Iterable[Evaluation]
) -> Anchors:
    """Read the measurements of the reference points (label to coefficients).

    How the merges differ document by document is not known here: errors are left out.
    The noise is as if documents explained half of the variance.
    """
    merges = by_merge(e for e in evaluations if not e.failed)
    measured = {label: merges.get(merge_key(c), {}) for label, c in anchors.items()}
    values = {
        label: {task: evaluation.value for task, evaluation in tasks.items()}
        for label, tasks in measured.items()
    }
    noise = {task: e.stderr or math.nan for task, e in measured.get(BASE, {}).items()}
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
                stderrs = errors_of_differences(front, anchor, task)
                errors[label][task] = float(stderrs.min())
    return Anchors(values, errors, {task: _noise(front, task) for task in front.tasks})


def _noise(front: Front, task: str) -> float:
    """Return the standard error of the best reference minus the base, or NaN."""
    column, base = [*front.tasks].index(task), front.anchor_index(BASE)
    utilities = front.utilities(front.anchors, "measured")[:, column]
    if base is None or np.isnan(utilities).all():
        return math.nan
    best = front.anchor_indices[[np.nanargmax(utilities)]]
    return float(PairedMerges.of(front, best, base).stderr[0, column])
