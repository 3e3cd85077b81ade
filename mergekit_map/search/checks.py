"""A search before it starts: problems of its settings, and how much it will measure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import MapBlock, share_of
from mergekit_map.config.tasks import LmEvalTask, TaskSpec
from mergekit_map.errors import DesignError, nearest
from mergekit_map.results.front import Order, members, pairs
from mergekit_map.results.log import Evaluation
from mergekit_map.search.bayesian import N_ROUND, bayesian_problems
from mergekit_map.search.measure import missing_of, own_evaluations
from mergekit_map.search.nested import (
    EVALUATIONS,
    Group,
    first_candidates,
    order_problems,
    pair_study,
)
from mergekit_map.search.planning import n_spent, next_round, wanted_evaluations
from mergekit_map.search.study import Candidate, Study
from mergekit_map.types import BASE


def search_problems(study: Study) -> list[Problem]:
    """List the problems of a study's strategy, order and number of evaluations."""
    strategy = study.search.strategy
    problems = bayesian_problems(study) if strategy == "bayesian" else []
    problems += _nested_problems(study) if strategy == "nested" else []
    if problems:
        return problems
    try:
        for part in _first_pairs(study) if strategy == "nested" else [study]:
            next_round(part, [], [])
    except DesignError as error:
        return [Problem(("map", "search", "evaluations"), str(error))]
    return []


def select_problems(study: Study) -> list[Problem]:
    """List the options of a selection that no measurement of this study supports."""
    select, known = study.select, study.labels
    key = ("map", "select", "not_worse_than")
    problems = [
        Problem(key, f"there is no {rival!r} to compare with; {nearest(rival, known)}")
        for rival in select.rivals
        if rival not in known
    ]
    for task, limit in (select.require or {}).items():
        if share_of(limit) is not None and BASE not in known:
            text = (
                "a share is of a gain over the base, but this merge has no base model; "
                "give the limit as a number, or not_worse_than"
            )
            problems.append(Problem(("map", "select", "require", task), text))
    return problems


def part_problems(spec: MapBlock, partial: Mapping[str, bool]) -> list[Problem]:
    """List the reasons against documents that are left out, and against a budget.

    Args:
        spec: The block, with its tasks.
        partial: Whether the value of a task on all documents can be estimated from
            some, for the tasks that could be loaded.
    """
    problems = []
    for name, task in spec.tasks.items():
        some = task.documents != "all"
        key = ("map", "tasks", name, *(["documents"] if some else []))
        if not partial.get(name, True) and (some or spec.search.holdout is not None):
            text = f"{_why_not_in_part(task)}, or leave 'documents' and 'holdout' out"
            problems.append(Problem(key, text))
        elif some and spec.search.strategy == "nested":
            text = (
                "nested measures every merge on all documents; use 'strategy: map', or "
                "leave 'documents' out"
            )
            problems.append(Problem(key, text))
    if spec.search.hours is not None and not spec.search.refines:
        text = (
            "'hours' end a search that chooses one merge after the other, but this one "
            "settles beforehand how many it measures; remove them and set "
            "'evaluations', or use 'strategy: map' without 'refine: false'"
        )
        problems.append(Problem(("map", "search", "hours"), text))
    return problems


def _why_not_in_part(task: TaskSpec) -> str:
    """Return why a task cannot be measured on some documents, and a remedy."""
    if isinstance(task, LmEvalTask):
        return (
            f"some documents do not say what {task.metric!r} is on all of them, as it "
            "is no mean of what single documents score; take a metric that is, such as "
            "acc"
        )
    return (
        "the function is not told which documents to measure; give it a third "
        "parameter 'documents', and let it return a number for each of them"
    )


def _nested_problems(study: Study) -> list[Problem]:
    names = list(study.bounds)
    if len(names) < 2:
        text = (
            f"nested merges two at a time, but only {names[0]!r} is searched; use map"
        )
        return [Problem(("map", "search", "strategy"), text)]
    order = study.search.order
    return [] if order is None else order_problems(order, names)


def _first_pairs(study: Study) -> list[Study]:
    bounds, select = study.bounds, study.select
    groups = [Group(name, name, tuple(study.tasks), 0.0) for name in bounds]
    # Pairs with the same bounds have the same problems.
    pairs = {
        (bounds[one.label], bounds[other.label]): (one, other)
        for one, other in itertools.permutations(groups, 2)
    }
    return [pair_study(study, pair, select, last=False) for pair in pairs.values()]


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


def forecast(study: Study) -> Forecast:
    """Count the measurements of a study without failures.

    Raises:
        DesignError: fewer evaluations than reference points, or than a surrogate needs.
    """
    always, later = len(_first_round(study, [])), list[tuple[float, int]]()
    if study.search.strategy == "nested":
        later = _pairs_to_merge(study)
    elif study.search.strategy == "bayesian":
        always = study.search.evaluations or always + 2 * N_ROUND
    elif study.search.refines:
        always = wanted_evaluations(study)
    searched = always + sum(merges for _, merges in later)
    front = study.search.remeasure + 1  # the chosen one, if it is not among the others
    beside = 0 if study.on_disk is None else len(study.on_disk.anchors)
    n_tasks = len(study.tasks)
    most = (searched + front + beside) * n_tasks
    part = sum(merges * _expected_tasks(share, n_tasks) for share, merges in later)
    expected = min(most, (always + front + beside) * n_tasks + math.ceil(part))
    held_out = 0
    if study.search.holdout is not None:  # the chosen merge and the references
        held_out = (1 + len(study.labels)) * n_tasks
    whole = len(first_candidates(study)) if study.in_part else searched
    return Forecast(
        searched=searched,
        front=front,
        measurements=most + held_out,
        expected=expected + held_out,
        whole=whole + front + beside,
        confirming=held_out,
        references=beside,
    )


def n_known(study: Study, log: Sequence[Evaluation]) -> int:
    """Count the measurements of a forecast that a log has.

    Which points of the front it has is not known before the end; none is counted.
    """
    seen = [e for e in own_evaluations(study, log) if e.role != "front"]
    first = _first_round(study, seen)
    count = len(first) * len(study.tasks) - len(missing_of(study, first, seen))
    if study.search.refines:  # and so uses other merges, too
        spent = min(n_spent(study, [first], seen), wanted_evaluations(study))
        count += (spent - len(first)) * len(study.tasks)
    if (part := study.on_disk) is not None:
        beside: list[Candidate] = [("anchor", c) for c in part.anchors.values()]
        missing = missing_of(part, beside, log)
        count += len(beside) * len(part.tasks) - len(missing)
    return count


def _first_round(study: Study, known: Sequence[Evaluation]) -> list[Candidate]:
    """List the merges that are measured whatever comes of them."""
    if study.search.strategy == "nested":
        return first_candidates(study)
    return next_round(study, [], known)


def probe_multiples(
    study: Study, sizes: Mapping[str, int]
) -> tuple[int, dict[str, float]]:
    """Count how often a search without a limit of hours repeats a probe.

    Returns the merges, and for each task how often all its documents are measured.

    Args:
        study: The study.
        sizes: Documents of each task.

    Raises:
        DesignError: as ``forecast``.
    """
    unlimited = study.search.model_copy(update={"hours": None})
    ahead = forecast(replace(study, search=unlimited))
    merges = ahead.searched + ahead.front + ahead.references
    # Pairs of a nested search are measured on their own tasks.
    part = (ahead.expected - ahead.confirming) / (merges * len(study.tasks))
    share = study.search.holdout or 0.0
    held_out = ahead.confirming / len(study.tasks) * share / (1 - share)
    times = {}
    for task, size in sizes.items():
        count = study.documents.get(task, "all")
        asked = 1.0 if count == "all" else min(1.0, count / max(size, 1))
        fitted = ahead.whole + asked * (merges - ahead.whole)
        times[task] = part * fitted + held_out
    return merges, times


def _pairs_to_merge(study: Study) -> list[tuple[float, int]]:
    """List the pairs of nested MAP: the share of the models in each, and its merges.

    The owner of a task is known when the single models are measured. Until then, any
    model may own each task; by default the pairs are a balanced tree.
    """
    n, count = len(study.bounds), study.search.evaluations or EVALUATIONS
    # Of a pair two groups are measured already, and base and soup of two if known.
    known = [set(merge.values()) for merge in study.fixed.values()]
    count -= 2 + ({0.0} in known) + ({0.5} in known)
    order = _balanced(n) if study.search.order is None else study.search.order
    *inner, last = [len(members(pair)) / n for pair in pairs(order)]
    # What is chosen of an inner pair is measured, too.
    return [*((share, count + 1) for share in inner), (last, count)]


def _expected_tasks(share: float, n_tasks: int) -> float:
    """Return the expected number of tasks of a pair with a share of the models.

    A pair is measured on the tasks that its models own, or on all if they own none.
    """
    return n_tasks * (share + (1 - share) ** n_tasks)


def _balanced(n: int) -> Order:
    return (_balanced(n // 2), _balanced(n - n // 2)) if n > 1 else ""
