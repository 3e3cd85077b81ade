"""Nested MAP: two groups of models are merged at a time (appendix, algorithm 3).

Each pair is searched by plain MAP in two coefficients, which multiply the weights in
its groups; other models have weight 0. The paper prints the merge with the sign of the
task vectors reversed; meant is ``base + c_i (model_i - base) + c_j (model_j - base)``.
A merge of such merges is one merge of the models, whose weights are the products along
the way. Merges are measured, logged and shipped as such, with every method: a method
that elects signs does so once, over all models, and not again for each pair.

A group starts as one coefficient and owns the tasks that it is best at among the
single models; a pair is measured on the tasks of both. Where neither owns one, all
tasks count. The paper pairs one model per task by its loss; here models and tasks are
independent. Losses of different tasks have different units, so each is scaled: 1 is the
worst single model, 0 is the best possible value where there is one, or else the best
single model.

Notation: ``N`` single models, ``m`` tasks, ``Y`` (N, m) what was measured of the single
models, larger is better, NaN where it failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.front import Order, axis_bounds
from mergekit_map.results.limits import Anchors, Request
from mergekit_map.results.log import (
    Evaluation,
    EvaluationLog,
    MergeKey,
    by_merge,
    merge_key,
)
from mergekit_map.results.surrogates import flat, locate, predict
from mergekit_map.search.finish import end_search
from mergekit_map.search.measure import fittable, measure, reference_values
from mergekit_map.search.planning import design
from mergekit_map.search.study import Candidate, Evaluator, Study, StudyResult
from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.surrogates.fit import Surrogates
from mergekit_map.types import SOUP

EVALUATIONS = 20  # per pair: the paper's T


def run_nested(study: Study, evaluate: Evaluator, log: EvaluationLog) -> StudyResult:
    """Merge pair after pair; return the last result, as coefficients of the study."""
    for _ in range(2):  # again what failed: pairs depend on it, and an outage may end
        measure(study, first_candidates(study), evaluate, log)
    known = fittable(study, log)
    anchors = reference_values(study, known, log)
    Request(study.select, study.tasks, anchors).limits()  # raises before the pairs
    merges = _single_models(study)  # of each group, by its label
    grouping = Grouping(study, anchors, Anchors.measured((merges, known)))
    while True:
        pair = grouping.next_pair()
        is_last = grouping.is_last
        of_pair = pair_study(study, pair, grouping.choice(pair), last=is_last)
        groups = {group.label: merges[group.label] for group in pair}
        part = study.of_tasks(of_pair.tasks)
        result = _search_pair(
            of_pair, part, groups, anchors, evaluate, log, is_last=is_last
        )
        chosen = result.front[result.selected]
        found = by_merge(fittable(part, log)).get(merge_key(chosen), {})
        values = {task: e.value for task, e in found.items() if not e.failed}
        merged = grouping.merge(pair, values)
        if is_last:
            return replace(result, order=merged.order)
        if not any(chosen.values()):  # the base has no weights that could be searched
            chosen = flat(of_pair.rounded(of_pair.box[:, 1]), groups)
        merges[merged.label] = dict(chosen)


def pair_study(study: Study, pair: Pair, select: SelectSpec, *, last: bool) -> Study:
    """Return the study of a pair; its coefficients multiply the merge of each group."""
    one, other = (group.label for group in pair)
    tasks = _pair_tasks(study, pair)
    base = [label for label, merge in study.fixed.items() if not any(merge.values())]
    corners = dict.fromkeys(base, (0.0, 0.0))
    corners |= {one: (1.0, 0.0), other: (0.0, 1.0), SOUP: (0.5, 0.5)}
    changes = {
        "strategy": "map",
        "order": None,
        "refine": False,
        "evaluations": study.search.evaluations or EVALUATIONS,
        "remeasure": study.search.remeasure if last else 0,
    }
    return replace(
        study.of_tasks(tasks),
        bounds=axis_bounds((one, other), study.bounds),
        anchors={label: {one: x, other: y} for label, (x, y) in corners.items()},
        corners={},
        on_disk=None,
        search=study.search.model_copy(update=changes),
        select=select,
    )


def _search_pair(
    study: Study,
    of_models: Study,
    groups: Mapping[str, Mapping[str, float]],  # coefficients of each of the pair
    anchors: Anchors,
    evaluate: Evaluator,
    log: EvaluationLog,
    *,
    is_last: bool,  # then fitted as whoever reads the log fits it
) -> StudyResult:
    """Search as plain MAP does, in the coefficients of the pair.

    Both studies have the tasks of the pair; the second measures merges of the models.
    """
    measured: dict[MergeKey, Mapping[str, float]] = {}  # by the merge of the pair
    asked: set[MergeKey] = set()  # later pairs may have measured others of this one

    def expanded(merge: Mapping[str, float]) -> Mapping[str, float]:
        return measured.get(merge_key(merge)) or flat(merge, groups)

    def measure_all(
        planned: Sequence[Candidate], surrogates: Surrogates
    ) -> list[Evaluation]:
        merges = [(role, expanded(merge)) for role, merge in planned]
        keys = [merge_key(merge) for _, merge in merges]
        asked.update(keys)
        readings = predict(surrogates, study.vectors(c for _, c in planned))
        foretold = dict(zip(keys, readings, strict=True))
        # Merges that differ only in a group whose weights are all 0 are one.
        distinct = [*dict(zip(keys, merges, strict=True)).values()]
        measure(of_models, distinct, evaluate, log, foretold)
        return in_pair(e for e in fittable(of_models, log) if e.key[0] in asked)

    def in_pair(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
        """Keep the merges of the pair, in its coefficients."""
        latest, known = by_merge(evaluations), []
        located = locate(map(dict, latest), of_models.bounds, groups, study.box)
        for by_task, row in zip(latest.values(), located, strict=True):
            if np.isfinite(row).all():
                merge = study.rounded(row)
                for e in by_task.values():
                    measured[merge_key(merge)] = e.coefficients
                    known.append(e.model_copy(update={"coefficients": merge}))
        return known

    def others() -> list[Evaluation]:
        return in_pair(fittable(of_models, log)) if is_last else []

    start = measure_all(design(study), {})
    result = end_search(study, start, anchors, measure_all, others=others)
    merges = [expanded(merge) for merge in result.front]
    return replace(result, front=merges, groups=groups)


@dataclass(frozen=True)
class Group:
    """One model, or several that are merged already."""

    label: str  # of one model its coefficient, else pair-1, pair-2, ...
    order: Order
    tasks: tuple[str, ...]  # owned
    loss: float  # of the tasks owned: 0 is ideal, 1 the worst single model


Pair: TypeAlias = tuple[Group, Group]


def first_candidates(study: Study) -> list[Candidate]:
    """List the merges measured before any pair: reference points and single models."""
    merges = [*study.fixed.values(), *_single_models(study).values()]
    distinct = {merge_key(merge): merge for merge in merges}
    return [("anchor", merge) for merge in distinct.values()]


def _single_models(study: Study) -> dict[str, dict[str, float]]:
    return {n: {o: float(o == n) for o in study.bounds} for n in study.bounds}


class Grouping:
    """The groups of a study, which are merged pair after pair."""

    def __init__(self, study: Study, readings: Anchors, singles: Anchors):
        self._study = study
        self._readings = readings  # of all reference points
        rows = [self._row(singles.values[name]) for name in study.bounds]
        self._singles: FloatArray = np.array(rows)  # (N, m), NaN where one failed
        owners = best_models(self._singles)
        self._groups = []
        for row, name in enumerate(study.bounds):
            owned = tuple(itertools.compress(study.tasks, owners == row))
            loss = self._loss(owned, self._singles[row])
            self._groups.append(Group(name, name, owned, loss))

    @property
    def is_last(self) -> bool:
        """Whether the next pair is the last one."""
        return len(self._groups) == 2

    def next_pair(self) -> Pair:
        """Choose two groups to merge: the next of the order given, or the closest."""
        if (order := self._study.search.order) is None:
            every = itertools.combinations(self._groups, 2)
            return min(every, key=lambda pair: abs(pair[0].loss - pair[1].loss))
        by_models = {frozenset(members(group.order)): group for group in self._groups}
        sides = ([frozenset(members(side)) for side in pair] for pair in pairs(order))
        one, other = next(pair for pair in sides if by_models.keys() >= set(pair))
        return by_models[one], by_models[other]

    def choice(self, pair: Pair) -> SelectSpec:
        """Return the selection for the next pair.

        The last pair uses the selection of the study, the others the preference among
        their own tasks, within limits.
        """
        study = self._study
        if self.is_last:
            return study.select
        tasks = _pair_tasks(study, pair)
        shares = {task: _task_shares(study)[task] for task in tasks}
        return SelectSpec(
            prefer=shares if any(shares.values()) else dict.fromkeys(tasks, 1.0),
            scalarization=study.select.scalarization,
            require=self._limits_within(tasks) or None,
        )

    def merge(self, pair: Pair, measured: Mapping[str, float]) -> Group:
        """Replace a pair by one group; ``measured`` is its values on its tasks."""
        tasks = self._study.tasks
        owned = tuple(t for t in tasks if any(t in group.tasks for group in pair))
        label = f"pair-{len(self._study.bounds) - len(self._groups) + 1}"
        while label in self._study.bounds:  # a model has this name
            label += "'"
        one, other = pair
        loss = self._loss(owned, self._row(measured))
        merged = Group(label, (one.order, other.order), owned, loss)
        self._groups = [*(g for g in self._groups if g not in pair), merged]
        return merged

    def _limits_within(self, tasks: Sequence[str]) -> dict[str, float | str]:
        """Return limits for a pair, between those of the study and the single models.

        The limit of a task is ``best + (limit - best) / limits / merges``: ``best`` is
        that of the single models, ``limits`` and ``merges`` are the numbers of limits
        and of merges to come, because every merge with another group costs some of it.
        A limit that no single model keeps is left to later pairs.
        """
        study = self._study
        limits = Request(study.select, study.tasks, self._readings).required()
        within: dict[str, float | str] = {}
        for column, (task, metric) in enumerate(study.tasks.items()):
            if task in tasks and task in limits:
                best = np.nanmax(self._singles[:, column], initial=-np.inf)
                if (missing := metric.utility(limits[task].value) - best) <= 0:
                    reached = best + missing / len(limits) / (len(self._groups) - 1)
                    within[task] = float(metric.sign * reached)
        return within

    def _row(self, measured: Mapping[str, float]) -> FloatArray:
        """Return values in their own units as a row (m,), larger is better."""
        tasks = self._study.tasks.items()
        return np.array([m.utility(measured.get(task, np.nan)) for task, m in tasks])

    def _loss(self, owned: Sequence[str], values: FloatArray) -> float:
        """Average the losses of owned tasks, or of all, weighted by the preference."""
        tasks = self._study.tasks
        ideals = np.array([max(map(m.utility, m.bounds)) for m in tasks.values()])
        losses = scaled_losses(values, self._singles, ideals)
        is_counted = [task in (owned or tasks) for task in tasks]
        weights = np.array(list(_task_shares(self._study).values()))[is_counted]
        if not weights.any():
            weights = np.ones_like(weights)
        return float(np.average(losses[is_counted], weights=weights))


def members(order: Order | list[Any]) -> tuple[str, ...]:
    """List the names in an order, from left to right."""
    if isinstance(order, str):
        return (order,)
    return tuple(name for part in order for name in members(part))


def pairs(order: Order | list[Any]) -> list[tuple[Order, Order]]:
    """List the two sides of every merge of an order, the inner ones first."""
    if isinstance(order, str):
        return []
    left, right = order
    return [*pairs(left), *pairs(right), (left, right)]


def _pair_tasks(study: Study, pair: Pair) -> list[str]:
    owned = {task for group in pair for task in group.tasks}
    return [task for task in study.tasks if task in owned or not owned]


def _task_shares(study: Study) -> dict[str, float]:
    """Normalise the preference to the sum 1; by default the tasks count alike.

    No later pair restores what a pair loses, so that a task with a limit counts as much
    as those preferred do on average, unless a preference differs.
    """
    prefer = study.select.prefer or dict.fromkeys(study.tasks, 1.0)
    preferred = {task: weight for task, weight in prefer.items() if weight}
    mean = sum(preferred.values()) / len(preferred)
    weights = dict.fromkeys(study.select.require or (), mean) | preferred
    total = sum(weights.values())
    return {task: weights.get(task, 0.0) / total for task in study.tasks}


def best_models(Y: FloatArray) -> IntArray:
    """Return each task's best measured model (m,), the first if equal or all failed."""
    return np.asarray(np.where(np.isnan(Y), -np.inf, Y).argmax(axis=0))


def scaled_losses(values: FloatArray, Y: FloatArray, ideal: FloatArray) -> FloatArray:
    """Scale the measured values (m,) of a merge to losses, smaller is better; (m,).

    ``ideal`` (m,) has the largest possible values, infinite where there is none. A loss
    is 1 where a value is NaN, and 0 for a task whose single models are all at the
    ideal, or all alike where there is none.
    """
    zero = np.where(np.isfinite(ideal), ideal, np.nanmax(Y, axis=0, initial=-np.inf))
    width = zero - np.nanmin(Y, axis=0, initial=np.inf)
    # A task on which no single model could be measured has no scale: its width is -inf.
    usable = width > 0
    losses = np.zeros(len(values))
    losses[usable] = (zero - values)[usable] / width[usable]
    return np.where(np.isnan(values), 1.0, losses)
