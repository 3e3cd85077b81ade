"""Gains of the chosen merge over the reference points.

Reference points are the base model, the uniform soup, and for each task the parent that
measured best on it. Amounts are positive where the chosen merge is better, in the
tasks' own units. With held-out documents, a gain is what these documents show.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import JsonValue, TypeAdapter

from mergekit_map.results.front import UNKNOWN, Front, Reading
from mergekit_map.results.paired import ALPHA, Differences, PairedMerges, stderrs_beside
from mergekit_map.types import BASE, SIGNIFICANT, SOUP
from mergekit_map.utils.files import plain

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
        """Return a value's share of the best parent's gain; None if that is noise."""
        if value is None or self.kept[task] is None:
            return None
        base, best = (self.over(label)[task] for label in (BASE, BEST_PARENT))
        base_value = base.reading.value or 0.0
        return (value - base_value) / ((best.reading.value or 0.0) - base_value)


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
            stderr=plain(float(paired.stderr[cell])),
            verdict=verdict,
        )
    return Gains(readings, sources, rivals, _kept(measured, paired, cells))


def _rival_cells(front: Front, paired: PairedMerges) -> dict[tuple[str, str], _Cell]:
    """Find base, soup and best parent of every task, where both have a value."""
    cells: dict[tuple[str, str], _Cell] = {}
    for rival, (column, task) in itertools.product(_RIVALS, enumerate(front.tasks)):
        label = front.best_parent(task) if rival == BEST_PARENT else rival
        if (index := front.anchor_index(label)) is not None:
            cell = index - len(front.points), column
            if np.isfinite(paired.difference[cell]):
                cells[rival, task] = cell
    return cells


def _kept(
    front: Front, chosen: PairedMerges, cells: Mapping[tuple[str, str], _Cell]
) -> dict[str, float | None]:
    """Return the shares of the best parents' gains that are kept; None if noise."""
    kept: dict[str, float | None] = dict.fromkeys(front.tasks)
    tasks = [t for t in kept if {(BASE, t), (BEST_PARENT, t)} <= cells.keys()]
    if (base := front.anchor_index(BASE)) is None or not tasks:
        return kept
    best = PairedMerges.of(front, front.anchor_indices, base)
    best_cells = [cells[BEST_PARENT, task] for task in tasks]
    verdicts = _verdicts(best, best_cells)
    for task, cell, verdict in zip(tasks, best_cells, verdicts, strict=True):
        if verdict == "better":
            gained = chosen.Y[cell] - best.other[cell]
            kept[task] = float(gained / best.difference[cell])
    return kept


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
                math.hypot(stderr, stderrs_beside(front, anchor, task).max())
                for anchor in front.anchor_indices.tolist()
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
    """Replace values of choice and references by held-out ones; return the tasks."""
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
