"""Measuring what a search is held against, into the log of the search's own run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from mergekit_map.arrays import FloatArray
from mergekit_map.compare.contest import MeasureMerges, Points, read_utilities
from mergekit_map.results.log import EvaluationLog, Role
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.steps.evaluate import MergeEvaluator, Merges, merges_as_asked
from mergekit_map.steps.project import Project
from mergekit_map.study.measuring import measure
from mergekit_map.study.study import Progress, Study


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
        with MergeEvaluator(merges or merges_as_asked(plain), folder) as evaluate:

            def measure_merges(role: Role, points: Points) -> FloatArray:
                candidates = [(role, point) for point in points]
                measure(study, candidates, evaluate, self.log, self._report)
                self.done += len(candidates) * len(study.tasks)
                return read_utilities(study, self.log, points)

            yield measure_merges

    def _report(self, progress: Progress) -> None:
        done = self.done + progress.done
        self.report(replace(progress, done=done, total=max(done, self.total)))
