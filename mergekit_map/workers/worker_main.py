"""The main functions of a worker: open the models of a project, measure merges.

A worker runs them in a process of its own. It answers in plain values, errors too.
"""

from __future__ import annotations

import importlib.util
import logging
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import datasets
import torch
import transformers
from huggingface_hub.utils.tqdm import disable_progress_bars

from mergekit_map.config.tasks import PythonTask
from mergekit_map.errors import ConfigError, EvaluationError, in_words
from mergekit_map.evaluation.evaluator import Worker, open_merges
from mergekit_map.evaluation.project import Project
from mergekit_map.search.callbacks import Callback
from mergekit_map.tasks.python_function import PythonFunction, definition
from mergekit_map.types import Measurement, MeasurementRequest
from mergekit_map.utils.files import sha256
from mergekit_map.utils.progress import notifying

_OPENED: list[Worker] = []  # one at most


@dataclass(frozen=True)
class Opening:
    """A project, packed for workers, which open its models."""

    project: bytes
    paths: Sequence[str]  # where its modules are
    sources: Mapping[str, str]  # digests of the files of those named by their paths
    threads: int  # of each worker


# What a worker is asked for: to open models, or to measure with those that are open.
Request: TypeAlias = Opening | MeasurementRequest


@dataclass(frozen=True)
class Answer:
    """The measurement of a worker, or the error that one process would have raised."""

    value: Measurement | None
    error: Exception | None = None
    remarks: Sequence[str] = ()  # for the user


def packed(project: Project, count: int, threads: int | None = None) -> Opening:
    """Pack a project for ``count`` workers.

    Raises:
        ConfigError: a part of it cannot be sent.
    """
    try:
        content = pickle.dumps(project)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"what is measured cannot be sent to workers ({error}); define it at the "
            "top of a module, or search without --workers"
        ) from None
    return Opening(
        content,
        [str(project.directory), *sys.path],
        {name: _digest(name) for name in sys.modules if Path(name).is_absolute()},
        threads or max(1, torch.get_num_threads() // count),
    )


def answer(request: Request) -> Answer:
    """Open the models of a project in place of another one's, or measure a merge."""
    value, error, remarks = None, None, _Remarks()
    try:
        with notifying(remarks):
            if isinstance(request, Opening):
                _open(request)
            else:
                value = _OPENED[0].measure(request)
    except BaseException as failure:  # noqa: BLE001 - whoever asked raises it
        error = _portable(failure)
    return Answer(value, error, remarks.texts)


def _open(opening: Opening) -> None:
    _silence()
    while _OPENED:
        _OPENED.pop().close()
    sys.path[:] = opening.paths
    torch.set_num_threads(opening.threads)
    for module, digest in opening.sources.items():
        _import_by_path(module, digest)
    project: Project = pickle.loads(opening.project)
    sys.path.append(sys.path.pop(0))  # as after a module was imported by one process
    for name, task in project.tasks.items():
        spec = project.spec.tasks[name]
        if (
            isinstance(task, PythonFunction)
            and isinstance(spec, PythonTask)
            and task.fingerprint != definition(spec, task.function)
        ):
            raise _changed(f"the code of task {name!r} ({spec.python})")
    worker = Worker(open_merges(project))
    worker.open()
    _OPENED.append(worker)


def _import_by_path(module: str, digest: str) -> None:
    """Import a module that lm-eval names by its path, unless it is imported."""
    if module in sys.modules:
        return
    if _digest(module) != digest:
        raise _changed(f"{module}.py")
    spec = importlib.util.spec_from_file_location(module, f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])


def _digest(module: str) -> str:
    """Return the digest of a file without its suffix; empty where there is none."""
    file = Path(f"{module}.py")
    return sha256(file.read_bytes()) if file.is_file() else ""


def _changed(what: str) -> ConfigError:
    return ConfigError(
        f"{what} changed while the search runs, and a worker that starts now would "
        "measure something else under the same name; put back what changed, or search "
        "again, which measures the new task apart"
    )


class _Remarks(Callback):
    """Collects notices for the main process, which reports the rest itself."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_notice(self, text: str) -> None:
        """Keep a notice."""
        self.texts.append(text)


def _silence() -> None:
    """Silence this process; the main process does all output."""
    disable_progress_bars()
    datasets.disable_progress_bars()
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger().setLevel(logging.ERROR)


def _portable(error: BaseException) -> Exception:
    """Return an error that can be sent, of the same kind and message if possible.

    An interrupt or exit here comes from the measured code, not from the user.
    """
    if not isinstance(error, Exception):
        return EvaluationError(in_words(error))
    try:
        sent = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - of others, who never sent it anywhere
        return RuntimeError(in_words(error))
    return error if type(sent) is type(error) else RuntimeError(str(error))
