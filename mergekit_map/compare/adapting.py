"""AdaMerging as a rival: a coefficient for each model, or for each layer of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from mergekit_map.compare.adamerging import (
    drawn_by,
    entropy_fingerprint,
    has_entropy,
    minimise_entropy,
    prepare_entropy,
)
from mergekit_map.compare.baseline_merges import (
    NAMES,
    per_layer,
    task_arithmetic,
    trimmed_task_vectors,
)
from mergekit_map.compare.bench import Rivals
from mergekit_map.errors import EvaluationError, MergeError
from mergekit_map.measurement import Metric
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.resident import resident_merge
from mergekit_map.merging.space import MergeSpace
from mergekit_map.search.arrays import FloatArray
from mergekit_map.steps.evaluate import InMemory
from mergekit_map.steps.project import Project

DESCENTS = 4  # AdaMerging and ++, each by model and by layer
_ENTROPY = "next-token entropy"  # no task can have this name
_METRIC = Metric(higher_is_better=False, lower=0.0, upper=None, unit="nats")


def adapted(rivals: Rivals) -> dict[str, FloatArray]:
    """Go down the entropy, and measure where that ends; (m,) by name."""
    reason = why_not_adapt(rivals.project)
    if reason is not None:
        rivals.notice(f"{NAMES.adamerging} is left out: {reason}")
        return {}
    whole = task_arithmetic(rivals.project.space)
    trimmed = trimmed_task_vectors(rivals.project.space)
    spaces = {
        NAMES.adamerging: lambda: whole,
        NAMES.adamerging_trimmed: lambda: trimmed,
        NAMES.adamerging_layers: lambda: per_layer(whole),
        NAMES.adamerging_trimmed_layers: lambda: per_layer(trimmed),
    }
    return {name: _adapt(rivals, name, space) for name, space in spaces.items()}


def why_not_adapt(project: Project) -> str | None:
    """Say what stands against AdaMerging here."""
    others = [name for name, task in project.tasks.items() if not has_entropy(task)]
    if others:
        return (
            "it needs text, or questions with given answers, for every task, and "
            f"{others[0]} is neither"
        )
    if project.spec.merge == "disk":
        return "it needs derivatives, which are taken of a merge in memory"
    return None


def _adapt(rivals: Rivals, name: str, make: Callable[[], MergeSpace]) -> FloatArray:
    try:
        space = make()
        merge = _descend(rivals, replace(rivals.project, space=space))
    except (MergeError, EvaluationError) as error:
        rivals.notice(f"{name} has no numbers: {error}")
        return np.full(len(rivals.project.tasks), np.nan)
    return np.asarray(rivals.measure_all(name, space, [merge])[0])


def _descend(rivals: Rivals, project: Project) -> dict[str, float]:
    bench = rivals.bench
    study = replace(
        project.study(),
        tasks={_ENTROPY: _METRIC},
        definitions={_ENTROPY: entropy_fingerprint(project.tasks)[:16]},
    )
    with bench.open(project, _merges_with_entropy(project), study) as measure:
        return minimise_entropy(
            study,
            bench.log,
            lambda c: measure("baseline", [c]),
            rivals.terms.spec.steps,
        )


@contextmanager
def _merges_with_entropy(project: Project) -> Iterator[InMemory]:
    checkpoint = project.spec.search.checkpoint_activations
    place = project.spec.task_vectors
    with resident_merge(project.space, project.options, place) as merge:
        differentiate = differentiation(
            merge, project.space, checkpoint_activations=checkpoint
        )
        measure = prepare_entropy(
            project.tasks,
            merge.model,
            merge.tokenizer,
            differentiate,
            lambda: drawn_by(merge.coefficients),
        )
        yield InMemory(merge, {_ENTROPY: measure})
