"""Merges as checkpoints: written by stock mergekit, loaded and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mergekit_map.files import scratch_folder
from mergekit_map.measurement import Measure
from mergekit_map.merging.checkpoint import load_checkpoint, write_checkpoint
from mergekit_map.merging.footprint import check_room
from mergekit_map.merging.recipe import stock_config
from mergekit_map.pulse import stage
from mergekit_map.steps.project import Project
from mergekit_map.tasks.generations import Generations
from mergekit_map.tasks.preparing import prepare_tasks
from mergekit_map.words import bytes_in_words


@dataclass(eq=False)
class OnDisk:
    """Writes each merge with stock mergekit and loads it from there."""

    project: Project

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Write a checkpoint, and drop it when it is loaded."""
        check_room(self.project.space, self.project.spec, self.project.options)
        with scratch_folder() as scratch:
            folder = scratch / "model"
            config = stock_config(self.project.space, coefficients)
            with stage("merging to disk"):
                write_checkpoint(config, folder, self.project.options)
            return OneCheckpoint(self.project, folder).at(coefficients)


@dataclass(eq=False)
class OneCheckpoint:
    """Takes what lies in a folder, whatever its coefficients are."""

    project: Project
    folder: Path

    def at(self, _: Mapping[str, float]) -> Mapping[str, Measure]:
        """Load the checkpoint."""
        spec = self.project.spec
        size = sum(file.stat().st_size for file in self.folder.glob("*.safetensors"))
        with stage(f"loading the merge from disk ({bytes_in_words(size)})"):
            model, tokenizer = load_checkpoint(self.folder, self.project.options)
            measures = prepare_tasks(
                self.project.tasks,
                model,
                tokenizer,
                batch_size=spec.batch_size,
                backend=spec.backend,
                generations=Generations(),
            )
        return as_searched(self.project, measures)


def as_searched(
    project: Project, measures: Mapping[str, Measure]
) -> Mapping[str, Measure]:
    """Keep documents apart that the search must not see."""
    apart = project.held_out
    return measures if apart is None else apart.parts(measures, project.tasks)
