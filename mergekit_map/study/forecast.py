"""How much a search will measure, before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mergekit_map.results.front import Order, members, pairs
from mergekit_map.study.bayesian import N_ROUND
from mergekit_map.study.grouping import first_candidates
from mergekit_map.study.nested import EVALUATIONS
from mergekit_map.study.planning import next_round, wanted_evaluations
from mergekit_map.study.study import Study


@dataclass(frozen=True)
class Forecast:
    """Merges and measurements of a search, as many as there can be."""

    searched: int  # merges, anchors included
    front: int  # predicted points that are measured afterwards
    measurements: int  # of a task at a merge
    expected: int  # of these, where what is measured depends on what was


def forecast(study: Study, *, checkpoints: bool) -> Forecast:
    """Count what a study without problems measures.

    Args:
        study: The study.
        checkpoints: Whether nested search merges checkpoints, each pair in a search of
            its own, as it does with methods that are not linear.

    Raises:
        DesignError: fewer evaluations than anchors, or than a surrogate needs.
    """
    front = study.search.remeasure + 1  # the chosen one, if it is not among the others
    if study.search.strategy == "nested":
        return _forecast_pairs(study, front, checkpoints=checkpoints)
    searched = len(next_round(study, [], []))
    if study.search.strategy == "bayesian":
        searched = study.search.evaluations or searched + 2 * N_ROUND
    elif study.search.refines:
        searched = wanted_evaluations(study)
    total = (searched + front) * len(study.tasks)
    return Forecast(searched, front, total, total)


def _forecast_pairs(study: Study, front: int, *, checkpoints: bool) -> Forecast:
    """Count those of nested MAP, whose pairs are measured on the tasks that they own.

    Who owns a task is known when the single models are measured. Until then, each is
    expected to be owned by any model; by default the pairs are a balanced tree.
    """
    n, n_tasks = len(study.bounds), len(study.tasks)
    anchors = len(first_candidates(study))
    pair = study.search.evaluations or EVALUATIONS
    if not checkpoints:
        pair -= _known_corners(study)
    order = _balanced(n) if study.search.order is None else study.search.order
    *inner, last = [len(members(pair)) for pair in pairs(order)]
    # What is chosen of an inner pair is measured, too.
    parts = [(size, pair + 1) for size in inner] + [(last, pair)]
    searched = anchors + sum(merges for _, merges in parts)
    always = (anchors + front) * n_tasks
    part = sum(merges * _expected_tasks(size / n, n_tasks) for size, merges in parts)
    most = (searched + front) * n_tasks
    return Forecast(searched, front, most, min(most, always + math.ceil(part)))


def _known_corners(study: Study) -> int:
    """Count what is known of a pair: its two groups, the base, the soup of two."""
    known = [set(merge.values()) for merge in study.anchors.values()]
    return 2 + ({0.0} in known) + ({0.5} in known)


def _expected_tasks(share: float, n_tasks: int) -> float:
    """Expect so many tasks for a pair of a share of the models.

    A pair is measured on the tasks that its models own, or on all if they own none.
    """
    return n_tasks * (share + (1 - share) ** n_tasks)


def _balanced(n: int) -> Order:
    return (_balanced(n // 2), _balanced(n - n // 2)) if n > 1 else ""
