"""From coefficients to measurements: merging and the tasks brought together."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from mergekit_map.measurement import Answers, Measure, Measurement, Part
from mergekit_map.merging.checkpoint import load_checkpoint, write_checkpoint
from mergekit_map.merging.footprint import check_room
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.recipe import stock_config
from mergekit_map.merging.resident import ResidentMerge, resident_merge
from mergekit_map.pulse import stage
from mergekit_map.results.answers import KeptAnswers, complete
from mergekit_map.steps.project import Project
from mergekit_map.tasks.generations import Generations
from mergekit_map.tasks.held_out import Divided
from mergekit_map.tasks.preparing import prepare_tasks
from mergekit_map.words import bytes_in_words


class Merges(Protocol):
    """The merges of a project, one at a time."""

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Merge, and give what measures the result until the next merge, by task."""
        ...


class MergeEvaluator:
    """Evaluates merges one after the other; a context that holds the models.

    ``merges`` is entered before the first measurement and not earlier, so that a
    finished search can be fitted and selected from again without loading a model.
    ``samples`` is where single items go, if they are kept.
    """

    def __init__(
        self,
        merges: AbstractContextManager[Merges],
        samples: Path | None,
        definitions: Mapping[str, str] = MappingProxyType({}),
    ):
        self._merged = _Merged(merges)
        self._records = None if samples is None else KeptAnswers(samples, definitions)

    def __enter__(self) -> MergeEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._merged.close()

    def held_out(self, samples: Path, definitions: Mapping[str, str]) -> HeldOutPart:
        """Give what measures the same merges on what the search never sees."""
        return HeldOutPart(self._merged, KeptAnswers(samples, definitions))

    def __call__(
        self, coefficients: Mapping[str, float], task: str, part: Part | None = None
    ) -> Measurement:
        """Merge, unless these coefficients are merged already, and measure a task.

        Of a ``part`` only the documents are asked whose answers are not on record.
        """
        if part is None:
            measurement = self._measure(coefficients, task, None)
        else:
            earlier = self._records.read(coefficients, task) if self._records else None
            measurement = complete(
                part, earlier, lambda ids: self._measure(coefficients, task, ids)
            )
        if self._records is not None:
            self._records.write(coefficients, task, measurement)
        return measurement

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Give what was answered before, of this definition of the task."""
        earlier = self._records.read(coefficients, task) if self._records else None
        return None if earlier is None else earlier.answers

    def _measure(
        self, coefficients: Mapping[str, float], task: str, ids: Sequence[int] | None
    ) -> Measurement:
        measure = self._merged.at(coefficients)[task]
        return measure() if ids is None else measure(ids)


@dataclass(frozen=True, eq=False)
class HeldOutPart:
    """Evaluates merges on the documents that a search never sees."""

    merged: _Merged
    records: KeptAnswers

    def __call__(
        self, coefficients: Mapping[str, float], task: str, part: Part | None = None
    ) -> Measurement:
        """Merge, unless that is done already, and measure all of these documents."""
        measure = self.merged.at(coefficients)[task]
        assert isinstance(measure, Divided)
        assert part is None
        measurement = measure.held_out()
        self.records.write(coefficients, task, measurement)
        return measurement

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Give what was answered before, of this definition of the task."""
        earlier = self.records.read(coefficients, task)
        return None if earlier is None else earlier.answers


class _Merged:
    """The merge that was made last, and what measures it; opened when it is wanted."""

    def __init__(self, merges: AbstractContextManager[Merges]):
        self._unopened = merges
        self._stack = ExitStack()
        self._merges: Merges | None = None
        self._coefficients: Mapping[str, float] | None = None
        self._measures: Mapping[str, Measure] = {}

    def close(self) -> None:
        """Let go of the models."""
        self._stack.close()

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Merge, unless these coefficients are merged already."""
        if self._merges is None:
            self._merges = self._stack.enter_context(self._unopened)
        if self._coefficients != coefficients:
            # If the merge fails, it is of no coefficients; and what measured the last
            # one may hold a model that the next one needs the memory of.
            self._coefficients, self._measures = None, {}
            self._measures = self._merges.at(coefficients)
            self._coefficients = dict(coefficients)
        return self._measures


def merges_as_asked(project: Project) -> AbstractContextManager[Merges]:
    """Choose how merges are made: in memory unless the configuration says otherwise."""
    if project.spec.merge == "disk":
        return nullcontext(OnDisk(project))
    return merges_in_memory(project)


@dataclass(frozen=True, eq=False)
class InMemory:
    """Keeps one model and overwrites its weights for each merge."""

    merge: ResidentMerge
    measures: Mapping[str, Measure]
    generations: Generations = field(default_factory=Generations)

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Write the weights."""
        self.generations.forget()
        self.merge.write(coefficients)
        return self.measures


@contextmanager
def merges_in_memory(project: Project) -> Iterator[InMemory]:
    """Open the models, and make every task ready to measure their merges."""
    check_room(project.space, project.spec, project.options)
    spec, differentiate, generations = project.spec, None, Generations()
    with resident_merge(project.space, project.options) as merge:
        if spec.search.gradients:
            differentiate = differentiation(
                merge,
                project.space,
                checkpoint_activations=spec.search.checkpoint_activations,
            )
        with stage(f"preparing {', '.join(project.tasks)}"):
            measures = prepare_tasks(
                project.tasks,
                merge.model,
                merge.tokenizer,
                batch_size=spec.batch_size,
                differentiate=differentiate,
                generations=generations,
            )
        yield InMemory(merge, _as_searched(project, measures), generations)


@dataclass(frozen=True, eq=False)
class OnDisk:
    """Writes each merge with stock mergekit and loads it from there."""

    project: Project

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Write a checkpoint, and drop it when it is loaded."""
        check_room(self.project.space, self.project.spec, self.project.options)
        with tempfile.TemporaryDirectory(prefix="mergekit-map-") as scratch:
            folder = Path(scratch) / "model"
            config = stock_config(self.project.space, coefficients)
            with stage("merging to disk"):
                write_checkpoint(config, folder, self.project.options)
            return OneCheckpoint(self.project, folder).at(coefficients)


@dataclass(frozen=True, eq=False)
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
        return _as_searched(self.project, measures)


def _as_searched(
    project: Project, measures: Mapping[str, Measure]
) -> Mapping[str, Measure]:
    """Keep documents apart that the search must not see."""
    apart = project.held_out
    return measures if apart is None else apart.parts(measures, project.tasks)
