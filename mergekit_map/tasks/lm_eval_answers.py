"""The documents of lm-eval tasks, and their scores one by one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from mergekit_map.tasks.lm_eval_tasks import ANSWER_TOKENS, HarnessTask
from mergekit_map.tasks.per_document import Average, aggregation_of, average
from mergekit_map.types import Answers

Samples: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]  # of lm-eval, by task
Asked: TypeAlias = Mapping[str, Sequence[int]]  # positions among its documents, by task


def divide(task: HarnessTask, documents: Sequence[int] | None) -> dict[str, list[int]]:
    """Split documents counted through all tasks into tasks and places in them.

    Tasks without documents are left out.
    """
    asked: dict[str, list[int]] = {}
    start = 0
    wanted = None if documents is None else set(documents)
    for leaf, size in task.sizes.items():
        places = range(size)
        chosen = [i for i in places if wanted is None or start + i in wanted]
        if chosen:
            asked[leaf] = chosen
        start += size
    return asked


def read_answers(task: HarnessTask, samples: Samples, asked: Asked) -> Answers | None:
    """Read the scores of the measured documents.

    None where the value is no average of documents, where some of them have no part
    in it, and where one has no weight.
    """
    found = {leaf: some for leaf, some in samples.items() if some}
    if not task.partial or _counts(found) != _counts(asked):
        return None
    metric = task.metric_name
    averages = [
        average(
            aggregation_of(task.loaded["tasks"][leaf], metric), _values(some, metric)
        )
        for leaf, some in found.items()
    ]
    known = [one for one in averages if one is not None]
    if not all((one.weights > 0).all() for one in known):
        return None
    scales = _scales(task)
    return Answers(
        ids=_ids(task, asked),
        values=_join([one.totals / one.weights for one in known]),
        weights=_join(
            [one.weights * scales[leaf] for leaf, one in zip(found, known, strict=True)]
        ),
        exponential=known[0].exponential,
    )


def of_answers(answers: Answers) -> Average:
    """Return the average of these documents alone."""
    weights = np.array(answers.weights)
    totals = np.array(answers.values) * weights
    return Average(totals, weights, answers.exponential)


def shares(task: HarnessTask, sizes: Sequence[int]) -> list[float]:
    """Return the weights of the parts of a group; a task by itself has one."""
    if task.subject not in task.loaded["groups"]:
        return [1.0]
    counts = sizes if counts_by_size(task) else [1] * len(sizes)
    return [count / sum(counts) for count in counts]


def counts_by_size(task: HarnessTask) -> bool:
    """Whether all documents of a group count alike, and not all of its tasks."""
    group = task.loaded["groups"][task.subject]
    entries = [c for c in group.aggregate_metric_list if c.metric == task.metric_name]
    # The last entry of a metric is the one whose value lm-eval keeps.
    return task.metric_name == ANSWER_TOKENS or bool(entries[-1].weight_by_size)


def _values(samples: Sequence[Mapping[str, Any]], metric: str) -> list[Any]:
    return [sample[metric] for sample in samples]


def _counts(parts: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    return {name: len(part) for name, part in parts.items()}


def _scales(task: HarnessTask) -> dict[str, float]:
    """Return how much a document of each task counts, 1 on average over all of them."""
    sizes = list(task.sizes.values())
    weighed = zip(task.sizes.items(), shares(task, sizes), strict=True)
    return {leaf: sum(sizes) * share / size for (leaf, size), share in weighed}


def _ids(task: HarnessTask, asked: Asked) -> tuple[int, ...]:
    starts = itertools.accumulate(task.sizes.values(), initial=0)
    start_of = dict(zip(task.sizes, starts, strict=False))
    return tuple(start_of[leaf] + i for leaf, places in asked.items() for i in places)


def _join(parts: Sequence[Any]) -> tuple[float, ...]:
    return tuple(np.concatenate(parts).tolist())
