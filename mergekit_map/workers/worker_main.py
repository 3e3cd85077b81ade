"""The main functions of a worker: open the models of a project, measure merges.

A worker runs them in a process of its own. It answers in plain values, errors too.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
from pathlib import Path

import torch

from mergekit_map.errors import ConfigError, MapError, MergeError, in_words
from mergekit_map.evaluation.evaluator import Worker, open_merges
from mergekit_map.evaluation.project import Project
from mergekit_map.tasks.base import quiet
from mergekit_map.types import MeasurementRequest
from mergekit_map.utils.files import sha256_of_file
from mergekit_map.workers.pool import Answer, Opening

_OPENED: list[Worker] = []  # one at most


def packed(project: Project, count: int, threads: int | None = None) -> Opening:
    """Pack a project for ``count`` workers, or raise ConfigError."""
    try:
        content = pickle.dumps(project)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"what is measured cannot be sent to workers ({error}); define it at the "
            "top of a module, or search without --workers"
        ) from None
    # lm-eval's tasks bring modules, which it names by their paths or as its own.
    files = {
        name: (str(module.__file__), sha256_of_file(Path(str(module.__file__))))
        for name, module in [*sys.modules.items()]
        if "__mtime__" in getattr(module, "__dict__", {})
        if os.fsencode(name) in content
    }
    for name, (file, _) in files.items():
        if os.stat(file).st_mtime_ns != vars(sys.modules[name])["__mtime__"]:
            raise MergeError(f"{file} changed; start again")
    return Opening(
        project=content,
        paths=[str(project.directory), *sys.path],
        sources=files,
        threads=threads or max(1, torch.get_num_threads() // count),
        threads_of_search=torch.get_num_threads(),
    )


def answer(opening: Opening, request: MeasurementRequest) -> Answer:
    """Open the models of a project, unless they are open, and measure a merge."""
    try:
        with quiet():  # the main process does all output
            if not _OPENED:
                _OPENED.append(_open(opening))
            return Answer(_OPENED[0].measure(request))
    except BaseException as failure:  # noqa: BLE001 - whoever asked raises it
        if isinstance(failure, MapError):
            return Answer(None, failure)
        # Errors of other libraries may be none that can be sent.
        kind = MergeError if isinstance(failure, OSError) else RuntimeError
        return Answer(None, kind(in_words(failure)))


def _open(opening: Opening) -> Worker:
    sys.path[:] = opening.paths
    torch.set_num_threads(opening.threads_of_search)  # the last bit of a sum has them
    for name, (file, known) in opening.sources.items():
        if sha256_of_file(Path(file)) != known:
            raise MergeError(f"{file} changed; start again")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    project: Project = pickle.loads(opening.project)
    sys.path.append(sys.path.pop(0))  # as after a module was imported by one process
    worker = Worker(open_merges(project))
    worker.open()
    torch.set_num_threads(opening.threads)
    return worker
