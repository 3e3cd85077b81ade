"""Nested MAP for merges that are linear in the weights (appendix, algorithm 3).

Two groups of models are merged at a time, each pair by plain MAP in two coefficients.
The paper prints the merge with the sign of the task vectors reversed; meant is
``base + c_i (model_i - base) + c_j (model_j - base)``. The task vector of a merge is
then itself a weighted sum, so a merge of merges is one vector of ordinary coefficients:
the products along the way. Merges are measured, logged and shipped as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mergekit_map.config.schema import SelectSpec
from mergekit_map.optimize.scalarization import farthest_point_subset
from mergekit_map.results.front import axis_bounds
from mergekit_map.results.gains import Anchors, measured_anchors
from mergekit_map.results.limits import Request
from mergekit_map.results.log import (
    Evaluation,
    EvaluationLog,
    MergeKey,
    Role,
    merge_key,
)
from mergekit_map.search.measure import matching, measure, reference_values
from mergekit_map.search.nested_groups import (
    Grouping,
    Pair,
    first_candidates,
    pair_tasks,
    single_models,
)
from mergekit_map.search.planning import design
from mergekit_map.search.study import Candidate, Evaluator, Study, StudyResult
from mergekit_map.types import SOUP

# Measure merges on some tasks, unless they are known, and give what is known of them.
MeasureOn: TypeAlias = Callable[[Iterable[str], Iterable[Candidate]], list[Evaluation]]

EVALUATIONS = 20  # per pair: the paper's T


def run_nested(study: Study, evaluate: Evaluator, log: EvaluationLog) -> StudyResult:
    """Merge pair after pair; measure what the log does not have yet.

    The result is that of the last pair, as coefficients of the study. Like all the
    pairs before it, it is a function of the study and of what was measured.

    Raises:
        DesignError: too few merges can be, or could be, measured for a quadratic.
        EvaluationError: the first merge cannot be measured.
    """

    def measure_on(
        tasks: Iterable[str], candidates: Iterable[Candidate]
    ) -> list[Evaluation]:
        part = of_tasks(study, tasks)
        wanted = {merge_key(c): (role, c) for role, c in candidates}
        measure(part, list(wanted.values()), evaluate, log)
        return [e for e in matching(part, log) if e.key[0] in wanted]

    known = measure_on(study.tasks, first_candidates(study))
    readings = reference_values(study, known, log)
    vectors = single_models(study)
    grouping = Grouping(study, readings, measured_anchors(vectors, known))
    while True:
        pair, is_last = grouping.next_pair(), grouping.is_last
        choices = grouping.choices(pair)
        plane = _Plane(
            study=pair_study(study, pair, choices[0], last=is_last),
            vectors={group.label: vectors[group.label] for group in pair},
        )
        result = _search_pair(plane, choices, readings, measure_on)
        merge = result.front[result.selected]
        # Chosen of a pair, it is an anchor of a later one.
        role: Role = "front" if is_last else "anchor"
        measured = measure_on(plane.study.tasks, [(role, merge)])
        values = {e.task: e.value for e in measured if not e.failed}
        merged = grouping.merge(pair, values)
        if is_last:
            return replace(result, order=merged.order)
        vectors[merged.label] = dict(merge)


def of_tasks(study: Study, tasks: Iterable[str]) -> Study:
    """Remove all other tasks from a study."""
    names = list(tasks)
    return replace(
        study,
        tasks={task: study.tasks[task] for task in names},
        definitions={task: study.definitions[task] for task in names},
        on_disk=None if study.on_disk is None else of_tasks(study.on_disk, names),
    )


def pair_study(study: Study, pair: Pair, select: SelectSpec, *, last: bool) -> Study:
    """Return the study of a pair; its coefficients multiply the merge of each group."""
    one, other = (group.label for group in pair)
    tasks = pair_tasks(study, pair)
    empty = [label for label, merge in study.fixed.items() if not any(merge.values())]
    corners = dict.fromkeys(empty, (0.0, 0.0))
    corners |= {one: (1.0, 0.0), other: (0.0, 1.0), SOUP: (0.5, 0.5)}
    changes = {
        "strategy": "map",
        "order": None,
        "refine": False,
        "evaluations": study.search.evaluations or EVALUATIONS,
        "remeasure": study.search.remeasure if last else 0,
    }
    return replace(
        of_tasks(study, tasks),
        bounds=axis_bounds((one, other), study.bounds),
        anchors={k: {one: c[0], other: c[1]} for k, c in corners.items()},
        corners={},
        on_disk=None,
        search=study.search.model_copy(update=changes),
        select=select,
    )


@dataclass(frozen=True, eq=False)
class _Plane:
    """The plane of a pair among all the coefficients of the study."""

    study: Study  # in the two coefficients of the pair
    vectors: Mapping[str, Mapping[str, float]]  # of the two groups

    def flat(self, merge: Mapping[str, float]) -> dict[str, float]:
        """Return a merge of the pair in the coefficients of the study.

        The groups share no model, so that each coefficient is one product.
        """
        names = next(iter(self.vectors.values()))
        return {
            name: sum(merge[label] * v[name] for label, v in self.vectors.items())
            for name in names
        }


def _search_pair(
    plane: _Plane,
    choices: Sequence[SelectSpec],
    readings: Anchors,
    measure_on: MeasureOn,
) -> StudyResult:
    study = plane.study
    known = _measure_pair(plane, measure_on)
    surrogates = study.fit(known)
    front = study.predicted_front(surrogates)
    predicted = study.predict(surrogates, front)
    merges = [plane.flat(study.named(row)) for row in front]
    again = farthest_point_subset(predicted, study.search.remeasure)
    measure_on(study.tasks, [("front", merges[i]) for i in again])
    for choice in choices:
        asked = replace(study, select=choice)
        rows, selected = asked.choose(surrogates, front, readings)
        chosen = study.predict(surrogates, rows[[selected]])
        request = Request(choice, study.tasks, readings)
        if (chosen >= request.lower_bounds(request.limits())).all():
            break
    merges = [plane.flat(study.named(row)) for row in rows]
    return StudyResult(surrogates, merges, selected, plane.vectors)


def _measure_pair(plane: _Plane, measure_on: MeasureOn) -> list[Evaluation]:
    """Measure the design of plain MAP, in the coefficients of the pair."""
    planned = design(plane.study)
    candidates = [(role, plane.flat(merge)) for role, merge in planned]
    merges: dict[MergeKey, Mapping[str, float]] = {}  # by the coefficients of the study
    for (_, merge), (_, flat) in zip(planned, candidates, strict=True):
        # Where all of a group has the weight 0, merges of the pair coincide.
        merges.setdefault(merge_key(flat), merge)
    known = {e.key: e for e in measure_on(plane.study.tasks, candidates)}
    return [
        e.model_copy(update={"coefficients": merges[e.key[0]]}) for e in known.values()
    ]
