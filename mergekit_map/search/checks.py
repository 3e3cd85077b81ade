"""A search before it starts: problems of its settings, and how much it will measure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from mergekit_map.config.problems import Problem, shown
from mergekit_map.config.schema import share_of
from mergekit_map.errors import DesignError
from mergekit_map.results.front import Order
from mergekit_map.results.log import EvaluationLog, merge_key
from mergekit_map.search.bayesian import MAX_COEFFICIENTS, N_ROUND
from mergekit_map.search.measure import fittable, missing_of
from mergekit_map.search.nested import (
    EVALUATIONS,
    Group,
    first_candidates,
    members,
    pair_study,
    pairs,
)
from mergekit_map.search.planning import n_spent, next_round
from mergekit_map.search.study import Candidate, Study
from mergekit_map.types import BASE
from mergekit_map.utils.text import listed, nearest

_ORDER: TypeAdapter[Order] = TypeAdapter(Order)


def search_problems(study: Study) -> list[Problem]:
    """List the problems of a study's strategy, order and number of evaluations."""
    strategy, n = study.search.strategy, len(study.bounds)
    if strategy == "bayesian" and n > MAX_COEFFICIENTS:
        text = (
            f"bayesian is for up to {MAX_COEFFICIENTS} coefficients, here are {n}; use "
            "map, or nested for many models"
        )
        return [Problem(("map", "search", "strategy"), text)]
    if strategy == "nested" and (problems := _nested_problems(study)):
        return problems
    parts = [study]
    if strategy == "nested":
        groups = [Group(name, name, tuple(study.tasks), 0.0) for name in study.bounds]
        parts = [
            pair_study(study, pair, study.select, last=False)
            for pair in itertools.combinations(groups, 2)
        ]
    try:
        for part in parts:
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


def _nested_problems(study: Study) -> list[Problem]:
    """Refuse one model, and an order that is no binary tree with each name once."""
    names, order = list(study.bounds), study.search.order
    if len(names) < 2:
        text = f"nested merges two at a time, but only {names[0]!r} is searched"
        return [Problem(("map", "search", "strategy"), f"{text}; use map")]
    if any(not low <= 0 <= high for low, high in study.bounds.values()):
        text = "nested merges two with a weight of 0 for the others; let bounds hold 0"
        return [Problem(("map", "search", "bounds"), text)]
    if order is None:
        return []
    with suppress(ValidationError):
        if sorted(members(_ORDER.validate_python(order))) == sorted(names):
            return []
    text = (
        "two are merged at a time, so this is a list of two coefficients or lists, "
        f"such as [[a, b], [c, d]], with each of {listed(names)} once; got "
        f"{shown(order)}"
    )
    return [Problem(("map", "search", "order"), text)]


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
    """Count the measurements of a study without problems and failures."""
    later: list[tuple[float, int]] = []
    if study.search.strategy == "nested":
        always = len(first_candidates(study))
        later = _pairs_to_merge(study)
    elif study.search.strategy == "bayesian":
        first = len(next_round(study, [], []))
        always = study.search.evaluations or first + 2 * N_ROUND
    else:
        always = study.wanted_evaluations
    searched = always + sum(merges for _, merges in later)
    front = study.search.remeasure + 1  # the chosen one, if it is not among the others
    beside = 0 if study.on_disk is None else len(study.on_disk.anchors)
    n_tasks = len(study.tasks)
    most = (searched + front + beside) * n_tasks
    # A pair is measured on the tasks that its models own, or on all if they own none.
    part = sum(n * (share + (1 - share) ** n_tasks) for share, n in later) * n_tasks
    expected = min(most, (always + front + beside) * n_tasks + math.ceil(part))
    # Of the chosen merge and the references.
    held_out = 0 if study.search.holdout is None else (1 + len(study.labels)) * n_tasks
    in_part = not all(map(study.is_whole, study.tasks))
    whole = len(set(map(merge_key, study.fixed.values()))) if in_part else searched
    return Forecast(
        searched=searched,
        front=front,
        measurements=most + held_out,
        expected=expected + held_out,
        whole=whole + front + beside,
        confirming=held_out,
        references=beside,
    )


def n_known(study: Study, log: EvaluationLog) -> int:
    """Count the measurements of a forecast that a log has.

    Which points of the front it has is not known before the end; none is counted.
    """
    seen = [e for e in fittable(study, log) if e.role != "front"]
    nested = study.search.strategy == "nested"
    first = first_candidates(study) if nested else next_round(study, [], seen)
    count = len(first) * len(study.tasks) - len(missing_of(study, first, seen))
    if study.search.refines:  # and so uses other merges, too
        spent = min(n_spent(study, [first], seen), study.wanted_evaluations)
        count += (spent - len(first)) * len(study.tasks)
    if (part := study.on_disk) is not None:
        beside: list[Candidate] = [("anchor", c) for c in part.anchors.values()]
        count += len(beside) * len(part.tasks) - len(missing_of(part, beside, log))
    return count


def probe_multiples(
    study: Study, sizes: Mapping[str, int]
) -> tuple[int, dict[str, float]]:
    """Count how often a search without a limit of hours repeats a probe.

    Returns the merges, and for each task how often all its documents are measured,
    held-out ones left out; ``sizes`` has the number of these.
    """
    unlimited = study.search.model_copy(update={"hours": None})
    ahead = forecast(replace(study, search=unlimited))
    merges = ahead.searched + ahead.front + ahead.references
    # Pairs of a nested search are measured on their own tasks.
    share = ahead.expected / ahead.measurements
    times = {}
    for task, size in sizes.items():
        count = study.documents.get(task, "all")
        asked = 1.0 if count == "all" else min(1.0, count / max(size, 1))
        times[task] = share * (ahead.whole + asked * (merges - ahead.whole))
    return merges, times


def _pairs_to_merge(study: Study) -> list[tuple[float, int]]:
    """List the pairs of nested MAP: the share of the models in each, and its merges.

    The owner of a task is known when the single models are measured. Until then, any
    model may own each task; by default the pairs are a balanced tree.
    """
    n, count = len(study.bounds), study.search.evaluations or EVALUATIONS
    # Of a pair two groups are measured already, and base and soup of two if known.
    known = [set(merge.values()) for merge in study.fixed.values()]
    count -= 2 + ({0.0} in known) + (n == 2 and {0.5} in known)
    order = _balanced(n) if study.search.order is None else study.search.order
    *inner, last = [len(members(pair)) / n for pair in pairs(order)]
    # What is chosen of an inner pair is measured, too.
    return [*((share, count + 1) for share in inner), (last, count)]


def _balanced(n: int) -> Order:
    return (_balanced(n // 2), _balanced(n - n // 2)) if n > 1 else ""
