"""Paired standard errors of differences between merges, from the items of each task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mergekit_map.results.front import Front, Merge
from mergekit_map.results.log import Evaluation, Role, merge_key
from mergekit_map.results.paired import Differences, stderrs_of_differences
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import are_of, mean_of, read_samples
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import Answers

# What rivals of a search measured is no part of it.
_RIVALS: frozenset[Role] = frozenset({"opponent", "baseline"})


@dataclass(frozen=True, eq=False)
class Itemised:
    """The influence of each item on a value."""

    items: tuple[tuple[str, int], ...]  # the part of a group, and the item in all
    influences: FloatArray  # (n,) in the unit of the value


def with_differences(
    front: Front, run: RunFolder, log: Iterable[Evaluation] = ()
) -> Front:
    """Compare the merges of a front item by item where its run folder has records."""
    place = run.of_points(front)
    samples = place.samples(place.read_manifest().merge)
    evaluations = list(log)
    own = {merge_key(e.coefficients) for e in evaluations if e.role not in _RIVALS}
    rivals = {merge_key(e.coefficients) for e in evaluations} - own

    def read(merge: Merge, task: str) -> Itemised | None:
        if merge_key(merge.coefficients) in rivals:
            return None
        folder = run.samples(merge.linear.merge) if merge.linear else samples
        found = read_samples(folder / task, merge.logged)
        if not are_of(found.answers, merge.measured[task]):
            return None
        return itemise(found.answers, [str(s.get("task", "")) for s in found.samples])

    known = {task: [read(m, task) for m in front.all_merges] for task in front.tasks}
    found = differences_of(known)
    return front.model_copy(update={"differences": found})


def differences_of(
    known: Mapping[str, Sequence[Itemised | None]],
) -> dict[str, Differences]:
    """Compare merges on each task where two or more have the same items."""
    compared = {task: compare_items(items) for task, items in known.items()}
    return {task: one for task, one in compared.items() if one is not None}


def itemise(answers: Answers, parts: Sequence[str] | None = None) -> Itemised | None:
    """Return the influence of each item on the value, to first order.

    None where items do not define a standard error: with fewer than two in a part, or
    an infinite value. Without ``parts`` there is one.
    """
    names = np.array([""] * len(answers.ids) if parts is None else parts)
    counts = np.unique(names, return_counts=True)[1]
    value = mean_of(answers)
    if len(names) != len(answers.ids) or not len(counts) or min(counts) < 2:
        return None
    if not math.isfinite(value):
        return None
    values, weights = np.array(answers.values), np.array(answers.weights)
    residuals = values.copy()
    for name in np.unique(names):
        part = names == name
        residuals[part] -= np.average(values[part], weights=weights[part])
    slope = value if answers.exponential else 1.0
    influences = slope * weights * residuals / weights.sum()
    if not np.isfinite(influences).all():
        return None
    items = tuple(zip(names.tolist(), answers.ids, strict=True))
    return Itemised(items, influences)


def compare_items(known: Sequence[Itemised | None]) -> Differences | None:
    """Compare the largest set of merges that were measured on the same items."""
    groups: dict[tuple[tuple[str, int], ...], dict[int, FloatArray]] = {}
    for index, one in enumerate(known):
        if one is not None:
            groups.setdefault(one.items, {})[index] = one.influences
    if not groups:
        return None
    items, same = max(groups.items(), key=lambda group: len(group[1]))
    if len(same) < 2:
        return None
    parts = np.unique([part for part, _ in items], return_inverse=True)[1]
    U = np.array([*same.values()])
    # Values are answers, many of them equal, or amounts.
    answers = bool(np.median([len(np.unique(row)) for row in U]) < len(items) / 2)
    stderr = stderrs_of_differences(U, parts)
    return Differences.of([*same], stderr, len(items), answers=answers)
