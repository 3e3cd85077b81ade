"""A merge as a model: its weights written in place, or a checkpoint on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from mergekit_map.evaluation.project import Project
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.tasks.loading import Generations
from mergekit_map.types import Measures
from mergekit_map.utils.files import scratch_folder
from mergekit_map.utils.progress import stage

# Merges, and returns the measures of the tasks, valid until the next merge.
MergeFunction: TypeAlias = Callable[[Mapping[str, float]], Measures]


@dataclass(frozen=True, eq=False)
class InPlace:
    """Keeps one model and overwrites its weights for each merge."""

    resident: Any  # a ``ResidentMerge``, or lm-eval's model of vLLM
    write: Callable[[Mapping[str, float]], None]
    measures: Measures
    generations: Generations

    def __call__(self, coefficients: Mapping[str, float]) -> Measures:
        """Write the weights."""
        self.generations.clear()
        self.write(coefficients)
        return self.measures


@contextmanager
def merged_on_disk(
    project: Project, coefficients: Mapping[str, float], name: str = "merging to disk"
) -> Iterator[Path]:
    """Yield a checkpoint by stock mergekit, written in a stage of this name."""
    with scratch_folder() as scratch:
        folder = scratch / "model"
        with stage(name):
            config = project.space.config(coefficients)
            write_checkpoint(config, folder, project.options)
        yield folder
