"""The budget of a search: the hours spent so far, and a forecast before it starts.

Hours are read from the log, so that a resumed search decides as one that was never
stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mergekit_map.results.front import Order, members, pairs
from mergekit_map.results.log import Evaluation
from mergekit_map.search.bayesian import N_ROUND
from mergekit_map.search.nested import EVALUATIONS
from mergekit_map.search.nested_groups import first_candidates
from mergekit_map.search.planning import next_round, wanted_evaluations
from mergekit_map.search.study import Study
from mergekit_map.types import BASE, NO_SINGLE_MODEL, SOUP


def can_go_on(study: Study, evaluations: Sequence[Evaluation]) -> bool:
    """Whether the hours allow a further merge, and the end of the search after it.

    Args:
        study: The study.
        evaluations: All that was measured so far, in the order of the log.
    """
    if study.search.hours is None:
        return True
    needed = sum(e.seconds for e in evaluations if e.taken is None)
    for task in study.tasks:
        lines = [e for e in evaluations if e.task == task and not e.failed]
        whole = _mean_seconds([e for e in lines if e.whole])
        subset = _mean_seconds([e for e in lines if not e.whole])
        needed += (study.search.remeasure + 1) * whole + (subset or whole)
    return needed <= 3600 * study.search.hours


def more_choices(study: Study) -> int:
    """Return how many measurements of the front are reserved for close limits.

    These are met closely.
    """
    return min(2, study.search.remeasure) if study.select.limited else 0


def _mean_seconds(lines: Sequence[Evaluation]) -> float:
    return sum(e.seconds for e in lines) / max(len(lines), 1)


@dataclass(frozen=True)
class Forecast:
    """The largest numbers of merges and measurements of a search."""

    searched: int  # merges, anchors included
    front: int  # predicted points that are measured afterwards
    measurements: int  # of a task at a merge
    expected: int  # of these, where what is measured depends on what was
    whole: int  # merges measured on all documents
    confirming: int = 0  # of the measurements: on documents that the search never sees
    references: int = 0  # base, parents and soup that are measured beside the search


def forecast(study: Study, *, checkpoints: bool) -> Forecast:
    """Count the measurements of a study without failures.

    Args:
        study: The study.
        checkpoints: Whether nested search merges checkpoints, each pair in a search of
            its own, as it does with methods that are not linear.

    Raises:
        DesignError: fewer evaluations than reference points, or than a surrogate needs.
    """
    front = study.search.remeasure + 1  # the chosen one, if it is not among the others
    if study.search.strategy == "nested":
        return _forecast_pairs(study, front, checkpoints=checkpoints)
    searched = len(next_round(study, [], []))
    if study.search.strategy == "bayesian":
        searched = study.search.evaluations or searched + 2 * N_ROUND
    elif study.search.refines:
        searched = wanted_evaluations(study)
    whole = front + (len(first_candidates(study)) if study.in_part else searched)
    held_out = n_holdout(study) * len(study.tasks)
    beside = n_beside(study)
    total = (searched + front + beside) * len(study.tasks) + held_out
    return Forecast(searched, front, total, total, whole + beside, held_out, beside)


def n_beside(study: Study) -> int:
    """Count the reference points that are no merges of the search."""
    return 0 if study.on_disk is None else len(study.on_disk.anchors)


def n_holdout(study: Study) -> int:
    """Count the held-out measurements of a task.

    They are of the chosen merge, base, soup and best single model.
    """
    if study.search.holdout is None:
        return 0
    labels = {*study.labels}
    return 1 + len({BASE, SOUP} & labels) + bool(labels - NO_SINGLE_MODEL)


def probe_multiples(
    study: Study, sizes: Mapping[str, int], *, checkpoints: bool
) -> tuple[int, dict[str, float]]:
    """Count how often a search without a limit of hours repeats a probe.

    Returns the merges, and for each task how often all its documents are measured.

    Args:
        study: The study.
        sizes: Documents of each task.
        checkpoints: As of ``forecast``, which raises the same.
    """
    unlimited = study.search.model_copy(update={"hours": None})
    ahead = forecast(replace(study, search=unlimited), checkpoints=checkpoints)
    merges = ahead.searched + ahead.front + ahead.references
    # Pairs of a nested search are measured on their own tasks.
    part = (ahead.expected - ahead.confirming) / (merges * len(study.tasks))
    share = study.search.holdout or 0.0
    held_out = n_holdout(study) * share / (1 - share)
    times = {}
    for task, size in sizes.items():
        count = study.documents.get(task, "all")
        asked = 1.0 if count == "all" else min(1.0, count / max(size, 1))
        fitted = ahead.whole + asked * (merges - ahead.whole)
        times[task] = part * fitted + held_out
    return merges, times


def _forecast_pairs(study: Study, front: int, *, checkpoints: bool) -> Forecast:
    """Count the measurements of nested MAP; pairs are measured on their own tasks.

    The owner of a task is known when the single models are measured. Until then, any
    model may own each task; by default the pairs are a balanced tree.
    """
    n, n_tasks = len(study.bounds), len(study.tasks)
    # Checkpoints are merged pair by pair; the models are measured as they are on disk.
    anchors = 0 if checkpoints else len(first_candidates(study))
    beside = n_beside(study)
    pair = study.search.evaluations or EVALUATIONS
    if not checkpoints:
        # Of a pair two groups are measured already, and base and soup of two if known.
        known = [set(merge.values()) for merge in study.fixed.values()]
        pair -= 2 + ({0.0} in known) + ({0.5} in known)
    order = _balanced(n) if study.search.order is None else study.search.order
    *inner, last = [len(members(pair)) for pair in pairs(order)]
    # What is chosen of an inner pair is measured, too.
    parts = [(size, pair + 1) for size in inner] + [(last, pair)]
    searched = anchors + sum(merges for _, merges in parts)
    always = (anchors + front + beside) * n_tasks
    part = sum(merges * _expected_tasks(size / n, n_tasks) for size, merges in parts)
    most = (searched + front + beside) * n_tasks
    expected, whole = min(most, always + math.ceil(part)), searched + front + beside
    held_out = n_holdout(study) * n_tasks
    return Forecast(
        searched, front, most + held_out, expected + held_out, whole, held_out, beside
    )


def _expected_tasks(share: float, n_tasks: int) -> float:
    """Return the expected number of tasks of a pair with a share of the models.

    A pair is measured on the tasks that its models own, or on all if they own none.
    """
    return n_tasks * (share + (1 - share) ** n_tasks)


def _balanced(n: int) -> Order:
    return (_balanced(n // 2), _balanced(n - n // 2)) if n > 1 else ""
