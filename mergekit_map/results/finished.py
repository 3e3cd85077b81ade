"""A finished search: its front, its surrogates, and its measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, by_merge, measured_of, read_log
from mergekit_map.results.run_folder import Manifest, RunFolder, open_run
from mergekit_map.results.surrogates import fit_again, locate
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.fit import Surrogate


@dataclass(frozen=True, eq=False)
class FinishedSearch:
    """The contents of the folder of a finished search, read once."""

    folder: RunFolder
    manifest: Manifest
    front: Front
    surrogates: Mapping[str, Surrogate]  # by task; none where they cannot be fitted
    evaluations: tuple[Evaluation, ...]  # of the front's coefficients, each key once

    def locate(self, merges: Iterable[Mapping[str, float]]) -> FloatArray:
        """Return the coordinates of merges on the axes; (k, d), NaN if not fitted."""
        front = self.front
        return locate(merges, front.coefficients, front.groups, front.axis_bounds)


def read_finished(run: Path) -> FinishedSearch:
    """Read the folder of a finished search.

    Raises:
        ArtifactError: the search is not finished, or a file of it is damaged.
    """
    folder = open_run(run)
    front = folder.read_front()
    evaluations = read_evaluations(folder, front)
    return FinishedSearch(
        folder=folder,
        manifest=folder.read_manifest(),
        front=front,
        surrogates=fit_again(front, evaluations),
        evaluations=evaluations,
    )


def read_evaluations(run: RunFolder, front: Front) -> tuple[Evaluation, ...]:
    """List the measurements of merges with the coefficients of a front, each once."""
    folder = run.of_points(front)
    manifest, names = folder.read_manifest(), front.coefficients
    log, definitions = read_log(folder.log), manifest.definitions
    measured = measured_of(log, manifest.merge, definitions, names)
    merges = by_merge(e for e in measured if e.task in front.tasks)
    return tuple(e for tasks in merges.values() for e in tasks.values())
