"""How much a search will measure, before it starts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mergekit_map.study.bayesian import N_ROUND
from mergekit_map.study.grouping import first_candidates
from mergekit_map.study.nested import EVALUATIONS
from mergekit_map.study.planning import default_evaluations, next_round
from mergekit_map.study.study import Study


@dataclass(frozen=True)
class Forecast:
    """Merges and measurements of a search, as many as there can be."""

    searched: int  # merges, anchors included
    front: int  # predicted points that are measured afterwards
    measurements: int  # of a task at a merge
    expected: int  # of these, where what is measured depends on what was


def forecast(study: Study) -> Forecast:
    """Count what a study without problems measures.

    Raises:
        DesignError: fewer evaluations than anchors, or than a surrogate needs.
    """
    front = study.search.remeasure + 1  # the chosen one, if it is not among the others
    if study.search.strategy == "nested":
        return _forecast_pairs(study, front)
    searched = len(next_round(study, [], []))
    if study.search.strategy == "bayesian":
        searched = study.search.evaluations or searched + 2 * N_ROUND
    elif study.search.refine:
        default = default_evaluations(len(study.bounds))
        searched = study.search.evaluations or default
    total = (searched + front) * len(study.tasks)
    return Forecast(searched, front, total, total)


def _forecast_pairs(study: Study, front: int) -> Forecast:
    """Count those of nested MAP, whose pairs are measured on the tasks that they own.

    Who owns a task is known when the single models are measured. Until then, tasks are
    expected to be spread over the models, and each to be measured in every pair that
    its owner becomes part of; by default the pairs are a balanced tree.
    """
    n, n_tasks = len(study.bounds), len(study.tasks)
    anchors = len(first_candidates(study))
    pair = study.search.evaluations or EVALUATIONS
    order = study.search.order
    depth = math.log2(n) if order is None else statistics.mean(_depths(order))
    always = (anchors + front) * n_tasks
    return Forecast(
        searched=anchors + (n - 1) * pair,
        front=front,
        measurements=always + (n - 1) * pair * n_tasks,
        expected=always + math.ceil(pair * n_tasks * depth),
    )


def _depths(order: Any, depth: int = 0) -> Iterator[int]:
    """List how many merges each model goes through."""
    if isinstance(order, list):
        for part in order:
            yield from _depths(part, depth + 1)
    else:
        yield depth
