"""The main functions of a worker: open the models of a project, measure merges.

A worker runs them in a process of its own. It answers in plain values, errors too.
"""

# ruff: noqa: E402
from __future__ import annotations

import gc

gc.disable()  # imports make no garbage, and the workers wait for them

import importlib.util
import pickle
import sys
from pathlib import Path

import torch

from mergekit_map.errors import MapError, MergeError, in_words
from mergekit_map.evaluation.evaluator import Worker, open_merges
from mergekit_map.evaluation.project import Project
from mergekit_map.tasks.base import quiet
from mergekit_map.types import MeasurementRequest
from mergekit_map.utils.files import sha256_of_file
from mergekit_map.workers.pool import Answer, Opening, add_parent

gc.freeze()  # else each collection visits all that they made
gc.enable()
_OPENED: list[Worker] = []  # one at most


def answer(opening: Opening, request: MeasurementRequest) -> Answer:
    """Open the models of a project, unless they are open, and measure a merge."""
    try:
        with quiet():  # the main process does all output
            if not _OPENED:
                _OPENED.append(_open(opening))
            return _OPENED[0].measure(request)
    except BaseException as failure:  # noqa: BLE001 - whoever asked raises it
        if isinstance(failure, MapError):
            return failure
        # Errors of other libraries may be none that can be sent.
        kind = MergeError if isinstance(failure, OSError) else RuntimeError
        return kind(in_words(failure))


def _open(opening: Opening) -> Worker:
    sys.path[:] = opening.paths
    torch.set_num_threads(opening.threads_of_search)  # the last bit of a sum has them
    for name, (file, known) in opening.sources.items():
        if sha256_of_file(Path(file)) != known:
            raise MergeError(f"{file} changed; start again")
        add_parent(name)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    project: Project = pickle.loads(opening.project)
    worker = Worker(open_merges(project))
    worker.open()
    torch.set_num_threads(opening.threads)
    return worker
