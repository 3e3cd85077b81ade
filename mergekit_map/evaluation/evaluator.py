"""The evaluator of a search: it merges by coefficients and measures tasks.

An engine opens the models, which a ``Worker`` does for its first measurement::

    with engine as merge:
        measures = merge({"code": 0.3, "math": 0.7})
        measurement = measures["gsm8k"](documents)

Engines are Hugging Face's model in memory, vLLM in place, and checkpoints on disk that
either of them loads; ``tasks/engines.py`` chooses the engine of a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from transformers import PreTrainedModel

from mergekit_map.errors import MergeError, first_line
from mergekit_map.evaluation.holdout import HoldoutSplit
from mergekit_map.evaluation.merges import InPlace, MergeFunction, merged_on_disk
from mergekit_map.evaluation.project import Project
from mergekit_map.evaluation.vllm import checkpoint_in_vllm, merges_in_vllm
from mergekit_map.merging.checkpoint import load_checkpoint
from mergekit_map.merging.devices import check_room
from mergekit_map.merging.in_memory import resident_merge
from mergekit_map.models.files import refuse_replaced
from mergekit_map.results.samples import SampleStore
from mergekit_map.search.measure import FAILURES
from mergekit_map.tasks.loading import Generations, prepare_tasks
from mergekit_map.types import Answers, Measurement, MeasurementRequest, Measures
from mergekit_map.utils.progress import stage
from mergekit_map.utils.shutdown import check_interrupt
from mergekit_map.utils.text import bytes_in_words

Engine: TypeAlias = AbstractContextManager[MergeFunction]
Arrived: TypeAlias = Callable[[MeasurementRequest, Measurement], None]


class Workers(Protocol):
    """The interface of one worker or a pool of workers."""

    def expect(self, ahead: Iterable[MeasurementRequest], arrived: Arrived) -> None:
        """Announce the next measurements in order, in place of those announced before.

        A pool may start on them. It calls ``arrived`` with a measurement that finished
        before ``measure`` asked for it, in this thread, when it is called next.
        """

    def measure(self, request: MeasurementRequest) -> Measurement:
        """Return a measurement; wait for it where it is running already."""

    def close(self) -> None:
        """Release the models."""


class Worker:
    """Measures merges one after the other; opens the models with the first one."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._stack = ExitStack()
        self._merge: MergeFunction | None = None
        self._coefficients: Mapping[str, float] | None = None
        self._measures: Measures = {}

    def open(self) -> MergeFunction:
        """Open the models, unless they are open; MergeError if they cannot be."""
        if self._merge is None:
            try:
                self._merge = self._stack.enter_context(self._engine)
            except FAILURES as error:  # of the models, not of one merge
                raise MergeError(first_line(error)) from error
        return self._merge

    def close(self) -> None:
        """Release the models for good: an engine is entered once."""
        self._stack.close()

    def expect(self, ahead: Iterable[MeasurementRequest], arrived: Arrived) -> None:
        """Do nothing: one worker does not work ahead."""

    def measure(self, request: MeasurementRequest) -> Measurement:
        """Merge, unless these coefficients are merged already, and measure a task.

        The seconds are those of both, without opening the models.
        """
        self.open()
        started = time.perf_counter()
        measure_task = self.merge_if_needed(request.coefficients)[request.task]
        if request.held_out:  # asked only where every task is split
            assert isinstance(measure_task, HoldoutSplit)
            measure_task = measure_task.held_out
        try:
            measured = measure_task(request.documents)
        except BaseException:
            self.forget()  # a task that failed may have changed the weights
            raise
        finally:
            check_interrupt()  # the signal may have ended what the task runs
        return replace(measured, seconds=time.perf_counter() - started)

    def forget(self) -> None:
        """Merge anew before the next measurement."""
        self._coefficients = None

    def merge_if_needed(self, coefficients: Mapping[str, float]) -> Measures:
        """Return, for each task, the function that measures it on this merge."""
        merge = self.open()
        if self._coefficients != coefficients:
            # If merging fails, the weights belong to no coefficients. The last measures
            # may hold a model, whose memory the next merge needs.
            self.forget()
            self._measures = {}
            self._measures = merge(coefficients)
            self._coefficients = dict(coefficients)
        return self._measures


class MergeEvaluator(AbstractContextManager["MergeEvaluator"]):
    """Evaluates merges, on the documents of the search or on the held-out ones.

    A context for the models, which are opened at the first measurement, so that a
    finished search can be fitted and selected from again without loading a model.
    Measurements are kept with their scores in the folder ``samples``, if there is one.
    """

    def __init__(
        self,
        workers: Workers,
        samples: Path | None,
        definitions: Mapping[str, str] = {},
        *,
        held_out: bool = False,
    ):
        self._workers = workers
        self._held_out = held_out
        self._store = None if samples is None else SampleStore(samples, definitions)

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def on_held_out(
        self, samples: Path, definitions: Mapping[str, str]
    ) -> MergeEvaluator:
        """Return one on the held-out documents, by these workers; close this one."""
        return MergeEvaluator(self._workers, samples, definitions, held_out=True)

    def __call__(
        self,
        coefficients: Mapping[str, float],
        task: str,
        documents: tuple[int, ...] | None = None,
    ) -> Measurement:
        """Return the measurement on record, or else measure and record it.

        One is on record if (1) a pool finished it ahead of its request, (2) a kill came
        after it was recorded and before it was logged, or (3) it was made for another
        purpose, such as to check the front.
        """
        items = tuple(coefficients.items())
        request = MeasurementRequest(items, task, documents, self._held_out)
        if (stored := self._stored(request)) is not None:
            return stored
        measured = self._workers.measure(request)
        self._record(request, measured)
        return measured

    def expect(self, ahead: Sequence[MeasurementRequest]) -> None:
        """Announce the next requests, so that workers can start on them."""
        wanted = [replace(request, held_out=self._held_out) for request in ahead]
        # A generator, as a single worker never looks at what is expected.
        missing = (request for request in wanted if self._stored(request) is None)
        self._workers.expect(missing, self._record)

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Return the scores on record, of this definition of the task."""
        return self._store.answers(coefficients, task) if self._store else None

    def _stored(self, request: MeasurementRequest) -> Measurement | None:
        return self._store.read(request) if self._store else None

    def _record(self, request: MeasurementRequest, measured: Measurement) -> None:
        if self._store is not None:
            self._store.write(request, measured)


@contextmanager
def open_merges(project: Project) -> Iterator[MergeFunction]:
    """Open the merges in transformers, vLLM, or both; refuse models replaced since."""

    def open_hugging_face(part: Project) -> Engine:
        if project.spec.merge == "disk":
            return nullcontext(partial(_merge_on_disk, part))
        return merges_in_memory(part)

    refuse_replaced(project.identity.models)
    with _by_engine(project, open_hugging_face, merges_in_vllm) as merges:

        def merge_checked(coefficients: Mapping[str, float]) -> Measures:
            measures = merges(coefficients)
            refuse_replaced(project.identity.models)
            return measures

        yield merge_checked


def open_checkpoint(project: Project, folder: Path) -> Engine:
    """Open the checkpoint in a folder, whatever the coefficients."""
    return _by_engine(
        project,
        lambda part: nullcontext(lambda _: _load(part, folder)),
        lambda part: checkpoint_in_vllm(part, folder),
    )


def _by_engine(
    project: Project,
    open_hugging_face: Callable[[Project], Engine],
    open_vllm: Callable[[Project], Engine],
) -> Engine:
    """Open each engine for its tasks; vLLM only where it has some."""
    of_hugging_face, of_vllm = project.by_engine()
    if not of_vllm.tasks:
        return open_hugging_face(of_hugging_face)
    engines = dict.fromkeys(of_hugging_face.tasks, open_hugging_face(of_hugging_face))
    return side_by_side({**engines, **dict.fromkeys(of_vllm.tasks, open_vllm(of_vllm))})


@contextmanager
def side_by_side(engines: Mapping[str, Engine]) -> Iterator[MergeFunction]:
    """Yield merges that are written to an engine when one of its tasks is measured."""
    with ExitStack() as stack:
        workers = {id(engine): Worker(engine) for engine in engines.values()}
        for worker in workers.values():
            stack.callback(worker.close)
            worker.open()  # now, as it is no time of a measurement
        of_task = {task: workers[id(engine)] for task, engine in engines.items()}

        def merges(coefficients: Mapping[str, float]) -> Measures:
            for worker in workers.values():
                worker.forget()
            return _LazyMeasures(of_task, dict(coefficients))

        yield merges


@dataclass(frozen=True, eq=False)
class _LazyMeasures(dict[str, Any]):
    """The measures of a merge; looking one up writes the merge to its engine."""

    workers: Mapping[str, Worker]
    coefficients: Mapping[str, float]

    def __missing__(self, task: str) -> Any:
        return self.workers[task].merge_if_needed(self.coefficients)[task]


def _merge_on_disk(project: Project, coefficients: Mapping[str, float]) -> Measures:
    check_room(project.space, project.spec, project.options)
    with merged_on_disk(project, coefficients) as folder:
        return _load(project, folder)


def _load(project: Project, folder: Path) -> Measures:
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    with stage(f"loading the merge from disk ({bytes_in_words(size)})"):
        model, tokenizer = load_checkpoint(folder, project.options)
        return _prepare(project, model, tokenizer, {})


@contextmanager
def merges_in_memory(project: Project) -> Iterator[InPlace]:
    """Open the models, and prepare every task to measure their merges."""
    check_room(project.space, project.spec, project.options)
    task_vectors, generations = project.spec.task_vectors, Generations()
    with resident_merge(project.space, project.options, task_vectors) as merge:
        with stage(f"preparing the tasks {', '.join(project.tasks)}"):
            measures = _prepare(project, merge.model, merge.tokenizer, generations)
        yield InPlace(merge, merge.write, measures, generations)


def _prepare(
    project: Project, model: PreTrainedModel, tokenizer: Any, generations: Generations
) -> Measures:
    measures = prepare_tasks(
        project.tasks,
        model,
        tokenizer,
        batch_size=project.spec.batch_size,
        backend=project.spec.backend,
        generations=generations,
    )
    return project.as_searched(measures)
