"""Measuring the single merges that a front is held against (table 4 of the paper).

Notation: ``P`` preferences among ``m`` tasks; metrics are larger is better, NaN where a
measurement failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from mergekit_map.compare.adamerging import (
    entropy_fingerprint,
    minimise_entropy,
    prepare_entropy,
)
from mergekit_map.compare.baseline_merges import (
    NAMES,
    dare_arithmetic,
    fine_tuned_models,
    fixed_merges,
    has_base,
    single_model,
    task_arithmetic,
    trimmed_task_vectors,
)
from mergekit_map.compare.contest import (
    ComparisonSpec,
    MeasureMerges,
    Points,
    read_utilities,
)
from mergekit_map.compare.scores import Scale, best_merges, best_rows, preferred_models
from mergekit_map.errors import EvaluationError, MergeError
from mergekit_map.measurement import Metric
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.resident import resident_merge
from mergekit_map.merging.space import MergeSpace
from mergekit_map.results.log import Role
from mergekit_map.results.opened_log import EvaluationLog
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.pairing import best_models
from mergekit_map.steps.evaluate import (
    InMemory,
    MergeEvaluator,
    merges_as_asked,
)
from mergekit_map.steps.project import Project
from mergekit_map.steps.worker import Merges, Worker
from mergekit_map.study.measuring import measure
from mergekit_map.study.study import Progress, Study
from mergekit_map.tasks.perplexity import PerplexityText

_ENTROPY = "next-token entropy"  # no task can have this name
_METRIC = Metric(higher_is_better=False, lower=0.0, upper=None, unit="nats")


@dataclass(eq=False)
class Bench:
    """The log of a run, and how far the measurements for a comparison are."""

    run: RunFolder
    log: EvaluationLog
    report: Callable[[Progress], None]
    total: int  # measurements there will be, those in the log included
    done: int = 0

    @contextmanager
    def open(
        self,
        project: Project,
        merges: AbstractContextManager[Merges] | None = None,
        study: Study | None = None,
    ) -> Iterator[MeasureMerges]:
        """Hold the models of a project, from the first merge that must be measured.

        By default they are merged as the project says, and measured on its tasks
        without derivatives, which only a fit has a use for.
        """
        search = project.spec.search.model_copy(update={"gradients": False})
        spec = project.spec.model_copy(update={"search": search})
        plain = replace(project, spec=spec)
        study = study or plain.study()
        folder = self.run.samples(study.merge)
        merges = merges or merges_as_asked(plain)
        with MergeEvaluator(Worker(merges), folder, study.definitions) as evaluate:

            def measure_merges(role: Role, points: Points) -> FloatArray:
                candidates = [(role, point) for point in points]
                measure(study, candidates, evaluate, self.log, self._report)
                self.done += len(candidates) * len(study.tasks)
                return read_utilities(study, self.log, points)

            yield measure_merges

    def _report(self, progress: Progress) -> None:
        done = self.done + progress.done
        self.report(replace(progress, done=done, total=max(done, self.total)))


@dataclass(frozen=True, eq=False)
class Terms:
    """What a baseline may measure, and by what it chooses among that."""

    spec: ComparisonSpec
    preferences: FloatArray  # (P, m), each adds up to 1
    scale: Scale  # of the metrics that a preference weighs


def count_baselines(project: Project, spec: ComparisonSpec) -> tuple[int, int]:
    """Count the merges to measure, and the steps of AdaMerging, at most."""
    space = project.space
    merges = len(fine_tuned_models(space)) + len(fixed_merges(space))
    if not has_base(space):
        return merges, 0
    merges += len(spec.scalars) + spec.preferences + 1
    return (merges, 0) if why_not_adapt(project) else (merges + 2, 2 * spec.steps)


def measure_baselines(
    bench: Bench, project: Project, terms: Terms, notice: Callable[[str], None]
) -> dict[str, FloatArray]:
    """Measure every baseline that the models and tasks allow, by name.

    (P, m), or (m,) where every preference gets the same merge. What mergekit refuses,
    or what cannot be measured, is NaN and named in a notice.
    """
    rivals = _Rivals(bench, project, terms, notice)
    space = project.space
    models = fine_tuned_models(space)
    singles = np.vstack([rivals.measure(m, single_model(space, m)) for m in models])
    owners = best_models(singles)
    found = {
        NAMES.singles: singles[owners, np.arange(len(owners))],
        NAMES.best_single: best_rows(singles, terms.preferences, terms.scale),
    }
    for name, merge in fixed_merges(space).items():
        found[name] = rivals.measure(name, merge)
    if has_base(space):
        found |= _task_arithmetic(rivals, owners)
        found |= _adapted(rivals)
    return {name: found[name] for name in NAMES if name in found}


def why_not_adapt(project: Project) -> str | None:
    """Say what stands against AdaMerging here."""
    texts = _texts(project)
    others = [name for name in project.tasks if name not in texts]
    if others:
        return f"it needs text for every task, and {others[0]} is no perplexity"
    if project.spec.merge == "disk":
        return "it needs derivatives, which are taken of a merge in memory"
    return None


@dataclass(frozen=True, eq=False)
class _Rivals:
    bench: Bench
    project: Project
    terms: Terms
    notice: Callable[[str], None]

    def measure(self, name: str, space: MergeSpace) -> FloatArray:
        """Measure a merge without coefficients as stock mergekit writes it; (m,)."""
        on_disk = self.project.spec.model_copy(update={"merge": "disk"})
        stock = replace(self, project=replace(self.project, spec=on_disk))
        return np.asarray(stock.measure_all(name, space, [{}])[0])

    def measure_all(self, name: str, space: MergeSpace, points: Points) -> FloatArray:
        """Measure merges of a space; (k, m)."""
        project = replace(self.project, space=space)
        try:
            with self.bench.open(project) as measure:
                return measure("baseline", points)
        except (MergeError, EvaluationError) as error:
            self.notice(f"{name} has no numbers: {error}")
            return np.full((len(points), len(project.tasks)), np.nan)


def _task_arithmetic(rivals: _Rivals, owners: IntArray) -> dict[str, FloatArray]:
    """Measure task arithmetic, and DARE with the scalar that is best without it."""
    space, terms = task_arithmetic(rivals.project.space), rivals.terms
    shares = preferred_models(terms.preferences, owners, len(space.names))
    grid = [dict.fromkeys(space.names, scalar) for scalar in terms.spec.scalars]
    points = [*grid, *map(space.named, shares)]
    measured = rivals.measure_all(NAMES.arithmetic, space, points)
    scalars, by_preference = np.split(measured, [len(grid)])
    found = {NAMES.by_preference: by_preference}
    if np.isnan(scalars).any(axis=1).all():
        return found
    (best,) = best_merges(scalars, np.ones((1, len(owners))), terms.scale)
    found[NAMES.arithmetic] = scalars[best]
    dare = dare_arithmetic(rivals.project.space, terms.spec.scalars[best])
    found[NAMES.dare] = rivals.measure(NAMES.dare, dare)
    return found


def _adapted(rivals: _Rivals) -> dict[str, FloatArray]:
    reason = why_not_adapt(rivals.project)
    if reason is not None:
        rivals.notice(f"{NAMES.adamerging} is left out: {reason}")
        return {}
    spaces = {
        NAMES.adamerging: task_arithmetic(rivals.project.space),
        NAMES.adamerging_trimmed: trimmed_task_vectors(rivals.project.space),
    }
    return {name: _adapt(rivals, name, space) for name, space in spaces.items()}


def _adapt(rivals: _Rivals, name: str, space: MergeSpace) -> FloatArray:
    project, bench = replace(rivals.project, space=space), rivals.bench
    study = replace(
        project.study(),
        tasks={_ENTROPY: _METRIC},
        definitions={_ENTROPY: entropy_fingerprint(_texts(project))[:16]},
    )
    steps = rivals.terms.spec.steps
    try:
        with bench.open(project, _merges_with_entropy(project), study) as measure:
            merge = minimise_entropy(
                study, bench.log, lambda c: measure("baseline", [c]), steps
            )
    except (MergeError, EvaluationError) as error:
        rivals.notice(f"{name} has no numbers: {error}")
        return np.full(len(project.tasks), np.nan)
    return np.asarray(rivals.measure_all(name, space, [merge])[0])


def _texts(project: Project) -> dict[str, PerplexityText]:
    return {n: t for n, t in project.tasks.items() if isinstance(t, PerplexityText)}


@contextmanager
def _merges_with_entropy(project: Project) -> Iterator[InMemory]:
    checkpoint = project.spec.search.checkpoint_activations
    place = project.spec.task_vectors
    with resident_merge(project.space, project.options, place) as merge:
        differentiate = differentiation(
            merge, project.space, checkpoint_activations=checkpoint
        )
        measure = prepare_entropy(
            _texts(project), merge.model, merge.tokenizer, differentiate
        )
        yield InMemory(merge, {_ENTROPY: measure})
