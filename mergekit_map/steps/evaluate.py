"""From coefficients to measurements: merging and the tasks brought together."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from mergekit_map.files import digest, plain, write_atomically
from mergekit_map.measurement import Measure, Measurement
from mergekit_map.merging.checkpoint import load_checkpoint, write_checkpoint
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.recipe import stock_config
from mergekit_map.merging.resident import resident_merge
from mergekit_map.steps.project import Project
from mergekit_map.tasks.preparing import prepare_tasks

# Merges with the coefficients and gives what measures the result, by task.
Prepare = Callable[[Mapping[str, float]], Mapping[str, Measure]]
# Holds the models of a project meanwhile.
Opener = Callable[[Project], AbstractContextManager[Prepare]]


class MergeEvaluator:
    """Evaluates merges one after the other; a context that holds the models.

    ``open_models`` is called before the first measurement and not earlier, so that a
    finished search can be fitted and selected from again without loading a model.
    """

    def __init__(
        self, open_models: Callable[[], AbstractContextManager[Prepare]], samples: Path
    ):
        self._open_models = open_models
        self._samples = samples
        self._stack = ExitStack()
        self._prepare: Prepare | None = None
        self._coefficients: Mapping[str, float] | None = None
        self._measures: Mapping[str, Measure] = {}

    def __enter__(self) -> MergeEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, coefficients: Mapping[str, float], task: str) -> Measurement:
        """Merge, unless these coefficients are merged already, and measure a task."""
        if self._prepare is None:
            self._prepare = self._stack.enter_context(self._open_models())
        if self._coefficients != coefficients:
            # If the merge fails, it is of no coefficients; and what measured the last
            # one may hold a model that the next one needs the memory of.
            self._coefficients, self._measures = None, {}
            self._measures = self._prepare(coefficients)
            self._coefficients = dict(coefficients)
        measurement = self._measures[task]()
        _save_samples(self._samples / task, coefficients, measurement)
        return measurement


def _save_samples(
    folder: Path, coefficients: Mapping[str, float], measurement: Measurement
) -> None:
    """Keep what was measured item by item, one file per merge."""
    if not measurement.samples:
        return
    content = {"coefficients": coefficients, "samples": list(measurement.samples)}
    path = folder / f"{digest(coefficients)}.json"
    write_atomically(path, json.dumps(plain(content)) + "\n")


def merges_as_asked(project: Project) -> Opener:
    """Choose how merges are made: in memory unless the configuration says otherwise."""
    return {"memory": merges_in_memory, "disk": merges_on_disk}[project.spec.merge]


@contextmanager
def merges_in_memory(project: Project) -> Iterator[Prepare]:
    """Keep one model and overwrite its weights for each merge."""
    search = project.spec.search
    with resident_merge(project.space, project.options) as merge:
        differentiate = None
        if search.gradients:
            differentiate = differentiation(
                merge,
                project.space,
                checkpoint_activations=search.checkpoint_activations,
            )
        measures = prepare_tasks(
            project.tasks,
            merge.model,
            merge.tokenizer,
            batch_size=project.spec.batch_size,
            differentiate=differentiate,
        )

        def prepare(coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
            merge.write(coefficients)
            return measures

        yield prepare


@contextmanager
def merges_on_disk(project: Project) -> Iterator[Prepare]:
    """Write each merge with stock mergekit and load it from there."""

    def prepare(coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        with tempfile.TemporaryDirectory(prefix="mergekit-map-") as scratch:
            folder = Path(scratch) / "model"
            config = stock_config(project.space, coefficients)
            write_checkpoint(config, folder, project.options)
            return _measures_of(project, folder)

    yield prepare


@contextmanager
def one_checkpoint(project: Project, folder: Path) -> Iterator[Prepare]:
    """Measure what lies in a folder, whatever its coefficients are."""
    measures = _measures_of(project, folder)
    yield lambda _: measures


def _measures_of(project: Project, folder: Path) -> Mapping[str, Measure]:
    """Load a checkpoint and make every task ready to measure it."""
    model, tokenizer = load_checkpoint(folder, project.options)
    spec = project.spec
    return prepare_tasks(
        project.tasks,
        model,
        tokenizer,
        batch_size=spec.batch_size,
        backend=spec.backend,
    )
