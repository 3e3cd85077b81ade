"""Replaced parts of lm-eval, each with the reason.

lm-eval guarantees none of them: hence the upper bound of its version, and a test that
names the parts that the installed one lacks.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch  # raises AttributeError where a part is no more

import lm_eval.api.model
import lm_eval.api.task
import lm_eval.models.dummy
import lm_eval.models.huggingface
import lm_eval.utils
from jinja2.sandbox import SandboxedEnvironment
from lm_eval.evaluator_utils import get_sample_size
from transformers import PreTrainedModel

from mergekit_map.utils.progress import step

_FEWSHOT_SEED = 1234  # the default of the lm_eval command
_WITH_BARS = (
    lm_eval.api.model,
    lm_eval.api.task,
    lm_eval.models.dummy,
    lm_eval.models.huggingface,
)
_LOADED_LATE = ("lm_eval.models.vllm_causallms",)  # with what it needs


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide progress bars: no argument switches all of them off."""
    with ExitStack() as stack:
        loaded = [sys.modules[name] for name in _LOADED_LATE if name in sys.modules]
        for module in (*_WITH_BARS, *loaded):
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
