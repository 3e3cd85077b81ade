"""The price of a search in hours: a merge made and measured once, on the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from mergekit.options import MergeOptions

from mergekit_map.errors import EvaluationError
from mergekit_map.files import StrPath
from mergekit_map.measurement import SOUP
from mergekit_map.steps.evaluate import merges_as_asked
from mergekit_map.steps.project import load_project
from mergekit_map.study.forecast import forecast, n_confirming, price
from mergekit_map.study.study import Study

T = TypeVar("T")


@dataclass(frozen=True)
class Probe:
    """How long things take."""

    coefficients: Mapping[str, float]
    load_seconds: float
    merge_seconds: float
    task_seconds: Mapping[str, float]
    expected_hours: float
    task_documents: Mapping[str, int]
    merges: int | None = None  # that are searched, as many as a budget allows
    budget_too_small: bool = False  # for what is measured whatever the budget is


def probe_config(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = MappingProxyType({}),
) -> Probe:
    """Merge the soup and measure every task at it, once, and say how long it all takes.

    Nothing of it is kept: a search measures the soup again. Models of the Hub are
    downloaded.

    Raises:
        ConfigError: the configuration or its models have problems.
        EvaluationError: a task cannot be measured.
        MergeError: the models cannot be merged.
    """
    project = load_project(
        config, options, directory, trust_run=trust_run, model_paths=model_paths
    )
    study = project.outline()
    soup, seconds, sizes = study.anchors[SOUP], {}, {}
    with ExitStack() as stack:
        opened = merges_as_asked(project)
        merges, load = _timed(lambda: stack.enter_context(opened))
        measures, merge = _timed(lambda: merges.at(soup))
        for task, measure in measures.items():
            try:
                found, seconds[task] = _timed(measure)
                sizes[task] = found.n
            except (
                EvaluationError,
                RuntimeError,
                ArithmeticError,
                MemoryError,
            ) as error:
                text = str(error) or type(error).__name__
                raise EvaluationError(
                    f"task {task!r} cannot be measured at the soup: {text}"
                ) from error
    apart = project.nests_checkpoints
    ahead = forecast(study, checkpoints=apart)
    loads = len(study.bounds) if apart else 1
    merging = (ahead.searched + ahead.front) * merge
    times = ahead.expected + ahead.confirming * (_confirmed_share(study) - 1)
    measuring = times * sum(seconds.values()) / len(seconds)
    hours = (loads * load + merging + measuring) / 3600
    probe = Probe(soup, load, merge, seconds, hours, sizes)
    return probe if study.search.strategy == "nested" else _priced(probe, study)


def _priced(probe: Probe, study: Study) -> Probe:
    """Add what the search takes on a subset of documents, or with a budget."""
    merging = probe.merge_seconds / len(study.tasks)
    seconds = {task: s + merging for task, s in probe.task_seconds.items()}
    found = price(study, probe.task_documents, seconds)
    apart = n_confirming(study) * _confirmed_share(study)
    hours = (probe.load_seconds + found.total + apart * sum(seconds.values())) / 3600
    by_part = study.in_part or study.search.hours is not None
    return replace(
        probe,
        expected_hours=hours if by_part else probe.expected_hours,
        merges=found.merges,
        budget_too_small=found.exceeds(study),
    )


def _confirmed_share(study: Study) -> float:
    """Give how many documents are held out for each one that the search has."""
    share = study.search.holdout or 0.0
    return share / (1 - share)


def _timed(action: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    return action(), time.perf_counter() - started
