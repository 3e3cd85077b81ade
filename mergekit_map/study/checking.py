"""What stands against a search, found before anything is measured."""

from __future__ import annotations

import itertools

from mergekit_map.config.parsing import Problem
from mergekit_map.errors import DesignError
from mergekit_map.study.bayesian import bayesian_problems
from mergekit_map.study.grouping import Group, order_problems
from mergekit_map.study.nested import pair_study
from mergekit_map.study.planning import next_round
from mergekit_map.study.study import Study


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
    tasks = tuple(study.tasks)
    pairs = {
        (study.bounds[one], study.bounds[other]): (
            Group(one, one, tasks, 0.0),
            Group(other, other, tasks, 0.0),
        )
        for one, other in itertools.permutations(study.bounds, 2)
    }
    select = study.select
    return [pair_study(study, pair, select, last=False) for pair in pairs.values()]
