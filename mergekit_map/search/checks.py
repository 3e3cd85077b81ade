"""Checks of the settings of a search, before anything is measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import MapBlock, share_of
from mergekit_map.config.tasks import LmEvalTask, TaskSpec
from mergekit_map.errors import DesignError, nearest
from mergekit_map.search.bayesian import bayesian_problems
from mergekit_map.search.nested import Group, order_problems, pair_study
from mergekit_map.search.planning import next_round
from mergekit_map.search.study import Study
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
