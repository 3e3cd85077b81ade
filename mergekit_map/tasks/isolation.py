"""Isolation of other libraries: no terminal, own randomness, requests of lm-eval.

lm-eval guarantees none of the parts that are replaced here: hence the upper bound of
its version.
"""

from __future__ import annotations

import copy
import functools
import logging
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch  # raises AttributeError where a part is no more

import lm_eval.utils
import numpy as np
import torch
from jinja2.sandbox import SandboxedEnvironment
from lm_eval.evaluator_utils import get_sample_size
from tqdm import tqdm

_LEVELS = {
    "lm_eval": logging.ERROR,
    "transformers": logging.ERROR,
    "datasets": logging.CRITICAL,  # what it logs, it raises as well
}
_FEWSHOT_SEED = 1234  # the default of the lm_eval command
_TEMPLATES = 4096  # that are kept compiled


@contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars, warnings and log lines below errors of other libraries."""
    begin = tqdm.__init__

    def hidden(bar: Any, *args: Any, **options: Any) -> None:
        begin(bar, *args, **{**options, "disable": True})

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(patch.object(tqdm, "__init__", hidden))
        for name, level in _LEVELS.items():
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        yield


@contextmanager
def separate_randomness() -> Iterator[None]:
    """Seed the global generators as lm-eval does inside, and restore them after.

    The seeds are those of the ``lm_eval`` command, so a task that draws from a global
    generator, by sampling from the model or in its own code, draws the same each time.
    """
    python = random.getstate()
    numpy = np.random.get_state()  # noqa: NPY002 - the global state others draw from
    on_cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if on_cuda else ()
    try:
        with torch.random.fork_rng(devices):
            random.seed(0)
            np.random.seed(1234)  # noqa: NPY002
            torch.manual_seed(1234)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def cached_templates() -> AbstractContextManager[Any]:
    """Compile each template once, in a sandbox: lm-eval's reach all of Python.

    For each field, it would take half of the time.
    """
    return patch.object(lm_eval.utils.env, "from_string", _compile)


@functools.lru_cache(_TEMPLATES)
def _compile(source: str) -> Any:
    known = lm_eval.utils.env
    sandbox = SandboxedEnvironment(
        loader=known.loader,
        undefined=known.undefined,
        keep_trailing_newline=known.keep_trailing_newline,
    )
    sandbox.filters.update(known.filters)
    return sandbox.from_string(source)


def build_requests(
    loaded: Mapping[str, Any], limit: int | float | None, **chat: Any
) -> None:
    """Build the requests of all tasks, for every evaluation from now on.

    lm-eval would draw other few-shot examples each time, and a task that makes its
    documents at random others, also where results are processed. ``chat`` is what
    lm-eval's ``build_all_requests`` needs to apply a chat template.
    """
    for task in loaded["tasks"].values():
        task.set_fewshot_seed(_FEWSHOT_SEED)
        size = get_sample_size(task, limit)
        documents = list(task.doc_iterator(limit=size))
        task.doc_iterator = functools.partial(_same_documents, documents)
        task.build_all_requests(limit=size, **chat)


def with_documents(
    loaded: Mapping[str, Any], asked: Mapping[str, Sequence[int]] | None
) -> dict[str, Any]:
    """Return tasks with some of their documents, by place; without the other tasks.

    Requests and documents are those of ``build_requests``, without responses. lm-eval
    would build all of them again, and add responses to those that are there; its own
    ``samples`` numbers documents anew, and needs one of each task.
    """
    parts = {}
    for name, task in loaded["tasks"].items():
        if asked is not None and name not in asked:
            continue
        documents = list(task.doc_iterator())
        if asked is not None:
            documents = [documents[place] for place in asked[name]]
        ids = {doc_id for doc_id, _ in documents}
        parts[name] = copy.copy(task)
        parts[name].doc_iterator = functools.partial(_same_documents, documents)
        parts[name].build_all_requests = lambda **_: None
        parts[name]._instances = [
            replace(request, resps=[], filtered_resps={})
            for request in task.instances
            if request.doc_id in ids
        ]
    return {**loaded, "tasks": parts}


def _same_documents(documents: list[Any], **_: Any) -> Iterator[Any]:
    return iter(documents)
