"""The main functions of a worker: open the models of a project, measure merges.

A worker runs them in a process of its own. It answers in plain values, errors too.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

import datasets
import torch
import transformers
from huggingface_hub.utils.tqdm import disable_progress_bars

from mergekit_map.config.tasks import PythonTask
from mergekit_map.errors import ConfigError, EvaluationError, in_words
from mergekit_map.evaluation.evaluator import Worker, open_merges
from mergekit_map.evaluation.project import Project
from mergekit_map.tasks.python_function import PythonFunction, definition
from mergekit_map.types import MeasurementRequest
from mergekit_map.utils.files import sha256
from mergekit_map.utils.progress import Listener, notifying
from mergekit_map.workers.pool import Answer, Opening

_OPENED: list[Worker] = []  # one at most


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
    named = (name for name in sys.modules if _source_of(name) is not None)
    return Opening(
        content,
        [str(project.directory), *sys.path],
        {name: _digest(name) for name in named if os.fsencode(name) in content},
        threads or max(1, torch.get_num_threads() // count),
    )


def answer(opening: Opening, request: MeasurementRequest) -> Answer:
    """Open the models of a project, unless they are open, and measure a merge."""
    value, error, remarks = None, None, _Remarks()
    try:
        with notifying(remarks):
            if not _OPENED:
                _OPENED.append(_open(opening))
            value = _OPENED[0].measure(request)
    except BaseException as failure:  # noqa: BLE001 - whoever asked raises it
        error = _portable(failure)
    return Answer(value, error, remarks.texts)


def _open(opening: Opening) -> Worker:
    _silence()
    sys.path[:] = opening.paths
    torch.set_num_threads(opening.threads)
    _import_sources(opening.sources)
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
    return worker


def _import_sources(sources: Mapping[str, str]) -> None:
    """Import the modules that lm-eval names by their paths.

    Raises:
        ConfigError: one of them is no longer the one with this digest.
    """
    for module, seen in sources.items():
        file = _source_of(module)
        if _digest(module) != seen:
            raise _changed(str(file))
        spec = importlib.util.spec_from_file_location(module, file)
        assert spec is not None
        assert spec.loader is not None
        made = sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)


def _source_of(module: str) -> Path | None:
    """Return the file of a module that is named by its path."""
    file = Path(f"{module}.py")
    return file if file.is_absolute() else None


def _digest(module: str) -> str:
    file = _source_of(module)
    return sha256(file.read_bytes()) if file is not None and file.is_file() else ""


def _changed(what: str) -> ConfigError:
    return ConfigError(
        f"{what} changed while the search runs, and a worker that starts now would "
        "measure something else under the same name; put back what changed, or search "
        "again, which measures the new task apart"
    )


class _Remarks(Listener):
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
