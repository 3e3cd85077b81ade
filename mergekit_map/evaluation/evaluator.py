"""The evaluator of a search: it merges by coefficients and measures tasks.

Merges are held in memory, or written as checkpoints by stock mergekit and loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from mergekit_map.evaluation.engines import by_engine, side_by_side
from mergekit_map.evaluation.project import Project
from mergekit_map.evaluation.vllm import checkpoint_in_vllm, merges_in_vllm
from mergekit_map.evaluation.worker import Merges, Work, Workers
from mergekit_map.merging.checkpoint import load_checkpoint, write_checkpoint
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.in_memory import ResidentMerge, resident_merge
from mergekit_map.merging.memory import check_room
from mergekit_map.merging.recipe import stock_config
from mergekit_map.models.files import refuse_replaced
from mergekit_map.results.log import Key, evaluation_key
from mergekit_map.results.out_of_order_results import Waiting
from mergekit_map.results.samples import AnswerStore, mean_of
from mergekit_map.tasks.loading import Generations, prepare_tasks
from mergekit_map.types import Answers, Measure, Measurement, MeasurementRequest
from mergekit_map.utils.files import scratch_folder
from mergekit_map.utils.progress import stage
from mergekit_map.utils.text import bytes_in_words


@dataclass(eq=False)
class OnDisk:
    """Writes each merge with stock mergekit and loads it from there."""

    project: Project

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Write a checkpoint, load it, and delete it."""
        check_room(self.project.space, self.project.spec, self.project.options)
        with scratch_folder() as scratch:
            folder = scratch / "model"
            config = stock_config(self.project.space, coefficients)
            with stage("merging to disk"):
                write_checkpoint(config, folder, self.project.options)
            return OneCheckpoint(self.project, folder).at(coefficients)


@dataclass(frozen=True, eq=False)
class Watched:
    """Merges of models that are compared with their fingerprints after each merge."""

    merges: Merges
    fingerprints: Mapping[str, str]

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Merge, and refuse it where a model was replaced meanwhile."""
        measures = self.merges.at(coefficients)
        refuse_replaced(self.fingerprints)
        return measures


@dataclass(eq=False)
class OneCheckpoint:
    """Measures the checkpoint in a folder, whatever the coefficients."""

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
    """Hide the held-out documents from the search."""
    apart = project.held_out
    return measures if apart is None else apart.parts(measures, project.tasks)


class MergeEvaluator:
    """Evaluates merges, on the documents of the search or on the held-out ones.

    A context for the models, which are opened at the first measurement, so that a
    finished search can be fitted and selected from again without loading a model.

    Args:
        workers: The worker or workers that merge and measure.
        samples: The folder of document scores, if they are kept.
        definitions: The digests of the tasks.
        early: The store of measurements that finish before the search requests them.
        held_out: Whether to measure the held-out documents.
    """

    def __init__(
        self,
        workers: Workers,
        samples: Path | None,
        definitions: Mapping[str, str] = MappingProxyType({}),
        early: Waiting | None = None,
        *,
        held_out: bool = False,
    ):
        self._workers, self._early, self._held_out = workers, early, held_out
        self._records = None if samples is None else AnswerStore(samples, definitions)
        self._took: dict[Key, float] = {}  # seconds, of what is only on record yet

    def __enter__(self) -> MergeEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def held_out(self, samples: Path, definitions: Mapping[str, str]) -> MergeEvaluator:
        """Return an evaluator of the same merges on the held-out documents."""
        early = None if self._early is None else self._early.of(definitions)
        return MergeEvaluator(self._workers, samples, definitions, early, held_out=True)

    def __call__(
        self,
        coefficients: Mapping[str, float],
        task: str,
        documents: tuple[int, ...] | None = None,
    ) -> Measurement:
        """Merge, unless these coefficients are merged already, and measure a task.

        The scores of some ``documents`` are taken from the records, if they are there.
        """
        wanted = MeasurementRequest(coefficients, task, documents)
        if (found := self._stored(wanted)) is not None:
            return found
        measured = self._workers.measure(self._work(wanted))
        self._record(wanted, measured)
        return measured

    def expect(self, ahead: Sequence[MeasurementRequest]) -> None:
        """Announce the next requests, so that workers can start on them."""
        works = {self._work(w): w for w in ahead if not self._is_stored(w)}

        def arrived(work: Work, measured: Measurement) -> None:
            wanted = works[work]
            self._record(wanted, measured)
            if wanted.documents is not None:
                key = evaluation_key(wanted.coefficients, wanted.task)
                self._took[key] = measured.seconds or 0.0
            elif self._early is not None:
                self._early.keep(wanted.coefficients, wanted.task, measured)

        self._workers.expect(list(works), arrived)

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Return the scores on record, of this definition of the task."""
        return self._records.read(coefficients, task) if self._records else None

    def _stored(self, wanted: MeasurementRequest) -> Measurement | None:
        """Return a measurement that finished before its request, or before a kill."""
        coefficients, task = wanted.coefficients, wanted.task
        if wanted.documents is None:
            return self._early.take(coefficients, task) if self._early else None
        if (answers := self._scores(wanted)) is None:
            return None
        took = self._took.pop(evaluation_key(coefficients, task), None)
        value, n = mean_of(answers), len(answers.ids)
        return Measurement(value, None, n, answers=answers, seconds=took)

    def _is_stored(self, wanted: MeasurementRequest) -> bool:
        coefficients, task = wanted.coefficients, wanted.task
        if wanted.documents is None:
            early = self._early
            return early is not None and early.find(coefficients, task) is not None
        return self._scores(wanted) is not None

    def _scores(self, wanted: MeasurementRequest) -> Answers | None:
        """Read the scores of exactly these documents."""
        answers = self.answers(wanted.coefficients, wanted.task)
        return answers if answers and answers.ids == wanted.documents else None

    def _record(self, wanted: MeasurementRequest, measured: Measurement) -> None:
        if self._records is not None:
            self._records.write(wanted.coefficients, wanted.task, measured)

    def _work(self, wanted: MeasurementRequest) -> Work:
        merge = tuple(wanted.coefficients.items())
        return Work(merge, wanted.task, wanted.documents, self._held_out)


@contextmanager
def open_merges(project: Project) -> Iterator[Merges]:
    """Open the merges in Hugging Face's model, vLLM, or both side by side."""
    here, in_vllm = by_engine(project)
    by_us = (
        nullcontext(OnDisk(here))
        if project.spec.merge == "disk"
        else merges_in_memory(here)
    )
    refuse_replaced(project.fingerprints)
    with _join_engines(here, by_us, in_vllm, merges_in_vllm) as merges:
        yield Watched(merges, project.fingerprints)


def merges_of_checkpoint(
    project: Project, folder: Path
) -> AbstractContextManager[Merges]:
    """Open the checkpoint in a folder, whatever the coefficients."""
    here, in_vllm = by_engine(project)
    by_us = nullcontext(OneCheckpoint(here, folder))
    return _join_engines(
        here, by_us, in_vllm, lambda part: checkpoint_in_vllm(part, folder)
    )


def _join_engines(
    here: Project,
    by_us: AbstractContextManager[Merges],
    in_vllm: Project,
    by_vllm: Callable[[Project], AbstractContextManager[Merges]],
) -> AbstractContextManager[Merges]:
    if not in_vllm.tasks:
        return by_us
    return side_by_side(
        {
            **dict.fromkeys(here.tasks, by_us),
            **dict.fromkeys(in_vllm.tasks, by_vllm(in_vllm)),
        }
    )


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
    """Open the models, and prepare every task to measure their merges."""
    check_room(project.space, project.spec, project.options)
    spec, differentiate, generations = project.spec, None, Generations()
    with resident_merge(project.space, project.options, spec.task_vectors) as merge:
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
        yield InMemory(merge, as_searched(project, measures), generations)
