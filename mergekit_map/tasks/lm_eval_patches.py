"""Replaced parts of lm-eval, each with the reason.

lm-eval guarantees none of them: hence the upper bound of its version, and a test that
names the parts that the installed one lacks.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

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
            stack.enter_context(_replaced(module, "tqdm", _counting(module.tqdm)))
        yield


def cached_templates() -> AbstractContextManager[None]:
    """Compile each template once; compiling it for each field takes half of the time.

    It is rendered in a sandbox: lm-eval lets templates reach all of Python.
    """
    return _replaced(lm_eval.utils.env, "from_string", _compile_template)


@functools.cache
def sandbox() -> SandboxedEnvironment:
    """Return an environment that renders templates as lm-eval's own does."""
    known = lm_eval.utils.env
    made = SandboxedEnvironment(
        loader=known.loader,
        undefined=known.undefined,
        keep_trailing_newline=known.keep_trailing_newline,
    )
    made.filters.update(known.filters)
    return made


def without_tying(model: PreTrainedModel) -> AbstractContextManager[None]:
    """Keep HFLM from tying weights: it would overwrite an untied head.

    It would also replace parameters that others hold.
    """
    return _replaced(model, "tie_weights", lambda: None)


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
        documents = list(type(task).doc_iterator(task, limit=size))
        task.doc_iterator = functools.partial(_same_documents, documents)
        type(task).build_all_requests(task, limit=size, **chat)
        task.build_all_requests = functools.partial(_forget_responses, task)


@contextmanager
def asking(
    loaded: Mapping[str, Any], asked: Mapping[str, Sequence[int]]
) -> Iterator[Mapping[str, Any]]:
    """Restrict each task to these of its documents, by place, and drop other tasks.

    lm-eval's own ``samples`` numbers documents anew, needs one of each task, and
    builds all requests again. Requests and documents are those of ``build_requests``.
    """
    with ExitStack() as stack:
        for name, places in asked.items():
            task = loaded["tasks"][name]
            documents = list(task.doc_iterator())
            some = [documents[place] for place in places]
            ids = {doc_id for doc_id, _ in some}
            requests = [r for r in task.instances if r.doc_id in ids]
            iterate = functools.partial(_same_documents, some)
            stack.enter_context(_replaced(task, "doc_iterator", iterate))
            stack.enter_context(_replaced(task, "_instances", requests))
        yield {**loaded, "tasks": {name: loaded["tasks"][name] for name in asked}}


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    getattr(owner, name)  # raises AttributeError where lm-eval has it no more
    own = vars(owner)
    before = {name: own[name]} if name in own else {}
    own[name] = value
    try:
        yield
    finally:
        del own[name]
        own.update(before)


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
    return sandbox().from_string(source)


def _same_documents(documents: list[Any], **_: Any) -> Iterator[Any]:
    return iter(documents)


def _forget_responses(task: Any, **_: Any) -> None:
    # lm-eval appends the responses of each evaluation to those that are there.
    for request in task.instances:
        request.resps, request.filtered_resps = [], {}
