"""Measuring the single merges that a front is held against (table 4 of the paper).

Notation: ``P`` preferences among ``m`` tasks; metrics are larger is better, NaN where a
measurement failed. What a method gives may depend on the preference: (P, m).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mergekit_map.compare.adamerging import STEPS, minimise_entropy
from mergekit_map.compare.baseline_merges import (
    dare_arithmetic,
    fine_tuned_models,
    has_base,
    model_soup,
    sign_electing_merges,
    single_model,
    slerp,
    task_arithmetic,
    trimmed_task_vectors,
)
from mergekit_map.compare.bench import Bench
from mergekit_map.compare.contest import Merges
from mergekit_map.compare.entropy import entropy_fingerprint, prepare_entropy
from mergekit_map.compare.scores import Scale, best_merges, best_rows, preferred_models
from mergekit_map.errors import EvaluationError, MergeError
from mergekit_map.measurement import Measure, Metric
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.resident import resident_merge
from mergekit_map.merging.space import MergeSpace
from mergekit_map.search.pairing import best_models
from mergekit_map.steps.evaluate import Opener, Prepare, merges_on_disk
from mergekit_map.steps.project import Project
from mergekit_map.tasks.perplexity import PerplexityText

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int_]

SCALARS = tuple(k / 10 for k in range(1, 11))  # tried for task arithmetic

# In the paper's order; the second, and SLERP's row, are ours.
NAMES = (
    "Single task models",
    "Best single model",
    "Model soup",
    "TIES",
    "DARE-TIES",
    "Task arithmetic",
    "TA, preference as weights",
    "DARE-TA",
    "AdaMerging",
    "AdaMerging++",
    "DELLA",
    "SLERP",
)

_ENTROPY = "next-token entropy"  # no task can have this name
_METRIC = Metric(higher_is_better=False, lower=0.0, upper=None, unit="nats")


@dataclass(frozen=True, eq=False)
class Terms:
    """By what a baseline may choose among its merges."""

    preferences: FloatArray  # (P, m), each adds up to 1
    scale: Scale  # of the metrics that a preference weighs


def count_baselines(project: Project, preferences: int) -> tuple[int, int]:
    """Count the merges to measure, and the steps of AdaMerging, at most."""
    models = len(fine_tuned_models(project.space))
    merges = models + len(_fixed_merges(project.space))
    if not has_base(project.space):
        return merges, 0
    merges += len(SCALARS) + preferences + 1
    if why_not_adapt(project):
        return merges, 0
    return merges + 2, 2 * STEPS


def measure_baselines(
    bench: Bench, project: Project, terms: Terms, notice: Callable[[str], None]
) -> dict[str, FloatArray]:
    """Measure every baseline that the models and tasks allow; name to (P, m).

    What mergekit refuses, or what cannot be measured, is NaN and named in a notice.
    """
    rivals = _Rivals(bench, project, terms, notice)
    space = project.space
    models = fine_tuned_models(space)
    singles = np.vstack([rivals.measure(m, single_model(space, m)) for m in models])
    owners = best_models(singles)
    found = {
        "Single task models": rivals.for_all(singles[owners, np.arange(len(owners))]),
        "Best single model": best_rows(singles, terms.preferences, terms.scale),
    }
    for name, merge in _fixed_merges(space).items():
        found[name] = rivals.for_all(rivals.measure(name, merge))
    if has_base(space):
        found |= _task_arithmetic(rivals, owners)
        found |= _adapted(rivals)
    return {name: found[name] for name in NAMES if name in found}


def why_not_adapt(project: Project) -> str | None:
    """Say what stands against AdaMerging here."""
    others = [
        name
        for name, task in project.tasks.items()
        if not isinstance(task, PerplexityText)
    ]
    if others:
        return f"it needs text for every task, and {others[0]} is no perplexity"
    if project.spec.merge == "disk":
        return "it needs derivatives, which are taken of a merge in memory"
    return None


def _fixed_merges(space: MergeSpace) -> dict[str, MergeSpace]:
    found = {"Model soup": model_soup(space)}
    if len(fine_tuned_models(space)) == 2:
        found["SLERP"] = slerp(space)
    return {**found, **(sign_electing_merges(space) if has_base(space) else {})}


@dataclass(frozen=True, eq=False)
class _Rivals:
    bench: Bench
    project: Project
    terms: Terms
    notice: Callable[[str], None]

    def measure(self, name: str, space: MergeSpace) -> FloatArray:
        """Measure a merge without coefficients as stock mergekit writes it; (m,)."""
        row: FloatArray = self.measure_all(name, space, [{}], merges_on_disk)[0]
        return row

    def measure_all(
        self,
        name: str,
        space: MergeSpace,
        merges: Merges,
        opener: Opener | None = None,
    ) -> FloatArray:
        """Measure merges of a space; (k, m)."""
        project = replace(self.project, space=space)
        try:
            with self.bench.open(project, opener) as measure:
                return measure("baseline", merges)
        except (MergeError, EvaluationError) as error:
            self.notice(f"{name} has no numbers: {error}")
            return np.full((len(merges), len(project.tasks)), np.nan)

    def for_all(self, row: FloatArray) -> FloatArray:
        """Give every preference the same merge; (P, m)."""
        return np.tile(row, (len(self.terms.preferences), 1))


def _task_arithmetic(rivals: _Rivals, owners: IntArray) -> dict[str, FloatArray]:
    """Measure task arithmetic, and DARE with the scalar that is best without it."""
    space = task_arithmetic(rivals.project.space)
    terms = rivals.terms
    shares = preferred_models(terms.preferences, owners, len(space.names))
    grid = [dict.fromkeys(space.names, scalar) for scalar in SCALARS]
    merges = [*grid, *map(space.named, shares)]
    measured = rivals.measure_all("Task arithmetic", space, merges)
    scalars, by_preference = np.split(measured, [len(grid)])
    found = {"TA, preference as weights": by_preference}
    if np.isnan(scalars).any(axis=1).all():
        return found
    (best,) = best_merges(scalars, np.ones((1, len(owners))), terms.scale)
    dare = dare_arithmetic(rivals.project.space, SCALARS[best])
    return {
        **found,
        "Task arithmetic": rivals.for_all(scalars[best]),
        "DARE-TA": rivals.for_all(rivals.measure("DARE-TA", dare)),
    }


def _adapted(rivals: _Rivals) -> dict[str, FloatArray]:
    reason = why_not_adapt(rivals.project)
    if reason is not None:
        rivals.notice(f"AdaMerging is left out: {reason}")
        return {}
    spaces = {
        "AdaMerging": task_arithmetic(rivals.project.space),
        "AdaMerging++": trimmed_task_vectors(rivals.project.space),
    }
    return {name: _adapt(rivals, name, space) for name, space in spaces.items()}


def _adapt(rivals: _Rivals, name: str, space: MergeSpace) -> FloatArray:
    project = replace(rivals.project, space=space)
    study = replace(
        project.study(),
        tasks={_ENTROPY: _METRIC},
        definitions={_ENTROPY: entropy_fingerprint(_texts(project))[:16]},
    )
    try:
        with rivals.bench.open(project, _merges_with_entropy, study) as measure:
            merge = minimise_entropy(
                study, rivals.bench.log, lambda c: measure("baseline", [c])
            )
    except (MergeError, EvaluationError) as error:
        rivals.notice(f"{name} has no numbers: {error}")
        return rivals.for_all(np.full(len(project.tasks), np.nan))
    return rivals.for_all(rivals.measure_all(name, space, [merge])[0])


def _texts(project: Project) -> dict[str, PerplexityText]:
    return {n: t for n, t in project.tasks.items() if isinstance(t, PerplexityText)}


@contextmanager
def _merges_with_entropy(project: Project) -> Iterator[Prepare]:
    search = project.spec.search
    with resident_merge(project.space, project.options) as merge:
        differentiate = differentiation(
            merge, project.space, checkpoint_activations=search.checkpoint_activations
        )
        measure = prepare_entropy(
            _texts(project), merge.model, merge.tokenizer, differentiate
        )

        def prepare(coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
            merge.write(coefficients)
            return {_ENTROPY: measure}

        yield prepare
