"""Measurements for a comparison, kept in the log of the search.

Notation: ``P`` preferences among ``m`` tasks; metrics are larger is better, NaN where a
measurement failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from mergekit_map.compare.contest import (
    ComparisonSpec,
    MeasureMerges,
    Points,
    read_utilities,
)
from mergekit_map.compare.indicators import Scale
from mergekit_map.errors import EvaluationError, MergeError
from mergekit_map.evaluation.evaluator import MergeEvaluator, open_merges
from mergekit_map.evaluation.project import Project
from mergekit_map.evaluation.worker import Merges, Worker
from mergekit_map.merging.space import MergeSpace
from mergekit_map.results.log import EvaluationLog, Role
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.measure import measure
from mergekit_map.search.study import Progress, Study
from mergekit_map.surrogates.arrays import FloatArray


@dataclass(eq=False)
class Bench:
    """The log of a run, and the progress of the measurements for a comparison."""

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
        """Keep the models of a project loaded, from the first merge to measure on.

        By default they are merged as the project says, and measured on its tasks
        without derivatives, which only a fit has a use for.
        """
        search = project.spec.search.model_copy(update={"gradients": False})
        spec = project.spec.model_copy(update={"search": search})
        plain = replace(project, spec=spec)
        study = study or plain.study()
        folder = self.run.samples(study.merge)
        merges = merges or open_merges(plain)
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
    """The options, preferences and scale by which baselines are tuned."""

    spec: ComparisonSpec
    preferences: FloatArray  # (P, m), each adds up to 1
    scale: Scale  # of the metrics that a preference weighs


@dataclass(frozen=True, eq=False)
class Rivals:
    """Measures single merges of the models of a project, for its comparison."""

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
