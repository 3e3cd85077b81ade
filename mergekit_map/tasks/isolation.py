"""Isolation of other libraries: no terminal, own randomness, replaced parts of lm-eval.

lm-eval guarantees none of the parts: hence the upper bound of its version, and a test
that names those that the installed one lacks.
"""

from __future__ import annotations

import copy
import functools
import logging
import random
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch  # raises AttributeError where a part is no more

import datasets
import lm_eval.utils
import numpy as np
import torch
from jinja2.sandbox import SandboxedEnvironment
from lm_eval.evaluator_utils import get_sample_size
from transformers import PreTrainedModel

from mergekit_map.utils.progress import step
from mergekit_map.utils.shutdown import check_interrupt

_LEVELS = {
    "lm_eval": logging.ERROR,
    "transformers": logging.ERROR,
    "datasets": logging.CRITICAL,  # what it logs, it raises as well
}
_FEWSHOT_SEED = 1234  # the default of the lm_eval command
_WITH_BARS = (  # where they are loaded
    "lm_eval.api.model",
    "lm_eval.api.task",
    "lm_eval.models.dummy",
    "lm_eval.models.huggingface",
    "lm_eval.models.vllm_causallms",
)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars, warnings and log lines below errors of other libraries."""
    bars = datasets.is_progress_bar_enabled()
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(without_bars())
        for name, level in _LEVELS.items():
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        datasets.disable_progress_bars()
        if bars:
            stack.callback(datasets.enable_progress_bars)
        yield


def interruptible(lm: Any) -> AbstractContextManager[Any]:
    """Check for an interrupt before each forward pass of lm-eval's model."""
    model = getattr(lm, "model", None)
    if not isinstance(model, torch.nn.Module):
        return nullcontext()
    return model.register_forward_pre_hook(lambda *_: check_interrupt())


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


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide progress bars: no argument switches all of them off."""
    with ExitStack() as stack:
        for module in [sys.modules[name] for name in _WITH_BARS if name in sys.modules]:
            stack.enter_context(patch.object(module, "tqdm", _counting(module.tqdm)))
        yield


def cached_templates() -> AbstractContextManager[Any]:
    """Compile each template once; compiling it for each field takes half of the time.

    It is rendered in a sandbox: lm-eval lets templates reach all of Python.
    """
    return patch.object(lm_eval.utils.env, "from_string", _compile_template)


def without_tying(model: PreTrainedModel) -> AbstractContextManager[Any]:
    """Keep HFLM from tying weights: it would overwrite an untied head.

    It would also replace parameters that others hold.
    """
    return patch.object(model, "tie_weights", lambda: None)


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


@functools.cache
def _counting(bar: Any) -> Any:
    """Return a hidden progress bar that reports how much is done to a listener."""

    class Counting(bar):  # type: ignore[misc]
        def __init__(self, iterable: Any = None, *_: Any, **options: Any) -> None:
            super().__init__(iterable, disable=True)
            known = len(iterable) if hasattr(iterable, "__len__") else 0
            self._all, self._done = options.get("total") or known, 0

        def __iter__(self) -> Iterator[Any]:
            for item in self.iterable:
                yield item
                self.update()

        def update(self, n: float | None = 1) -> None:
            self._done += int(n or 0)
            step(self._done, self._all)

    return Counting


@functools.lru_cache(maxsize=4096)
def _compile_template(source: str) -> Any:
    return _sandbox().from_string(source)


@functools.cache
def _sandbox() -> SandboxedEnvironment:
    """Return an environment that renders templates as lm-eval's own does."""
    known = lm_eval.utils.env
    made = SandboxedEnvironment(
        loader=known.loader,
        undefined=known.undefined,
        keep_trailing_newline=known.keep_trailing_newline,
    )
    made.filters.update(known.filters)
    return made


def _same_documents(documents: list[Any], **_: Any) -> Iterator[Any]:
    return iter(documents)
