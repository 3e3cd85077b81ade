"""Measuring what a search is held against, into the log of the search's own run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mergekit_map.compare.contest import MeasureMerges, Merges, read_utilities
from mergekit_map.results.log import EvaluationLog, Role
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.steps.evaluate import MergeEvaluator, Opener, merges_as_asked
from mergekit_map.steps.project import Project
from mergekit_map.study.measuring import measure
from mergekit_map.study.study import Progress, Study


@dataclass(eq=False)
class Bench:
    """The log of a run, and how far the measurements for a comparison are."""

    run: Path
    log: EvaluationLog
    report: Callable[[Progress], None]
    total: int  # measurements there will be, those in the log included
    done: int = 0

    @contextmanager
    def open(
        self,
        project: Project,
        opener: Opener | None = None,
        study: Study | None = None,
    ) -> Iterator[MeasureMerges]:
        """Hold the models of a project, from the first merge that must be measured.

        By default they are merged as the project says, and measured on its tasks; in
        any case without derivatives of these, which only a fit has a use for.
        """
        search = project.spec.search.model_copy(update={"gradients": False})
        project = replace(project, spec=replace(project.spec, search=search))
        study = study or project.study()
        folder = RunFolder(self.run).samples(study.merge)
        open_models = opener or merges_as_asked(project)
        with MergeEvaluator(lambda: open_models(project), folder) as evaluate:

            def measure_merges(role: Role, merges: Merges) -> NDArray[np.float64]:
                candidates = [(role, merge) for merge in merges]
                measure(study, candidates, evaluate, self.log, self._report)
                self.done += len(candidates) * len(study.tasks)
                return read_utilities(study, self.log, merges)

            yield measure_merges

    def _report(self, progress: Progress) -> None:
        done = self.done + progress.done
        self.report(replace(progress, done=done, total=max(done, self.total)))
