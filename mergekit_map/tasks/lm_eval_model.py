"""Measurement of a model in memory with lm-evaluation-harness.

Values equal those of the command ``lm_eval --model hf --model_args
pretrained=...,softmax_dtype=float32 --batch_size B`` on the same checkpoint and
documents, log-likelihoods but for rounding, which another B moves too. One difference
is intended: rolling tasks see at most 2048 tokens at a time (as with
``max_length=2048``), where lm-eval takes the model's longest input and would hold the
logits of all of it.
"""

from __future__ import annotations

import copy
import functools
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from transformers import PreTrainedModel

from mergekit_map.config.schema import BackendSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.tasks.base import PreparedTask
from mergekit_map.tasks.isolation import quiet, separate_randomness
from mergekit_map.tasks.lm_eval_evaluation import measure_harness
from mergekit_map.tasks.lm_eval_patches import (
    build_requests,
    cached_templates,
    without_tying,
)
from mergekit_map.tasks.lm_eval_tasks import HarnessTask, is_scored
from mergekit_map.tasks.loglikelihood import (
    BatchSize,
    Likelihood,
    Likelihoods,
    checked,
    fitted,
)
from mergekit_map.tasks.prefix_tree import Request
from mergekit_map.types import Measure

logger = logging.getLogger(__name__)

_ROLLING = "loglikelihood_rolling"
_ROLLING_LENGTH = 2048
_GENERATING = 8  # rows, where the user leaves it to us


class HarnessModel(HFLM):  # type: ignore[misc]
    """lm-eval's model of a model in memory, scored by ``score`` where that is set.

    lm-eval builds and tokenises the requests, and judges the answers.
    """

    score: Callable[[Sequence[Request]], list[Likelihood]] | None = None

    def _loglikelihood_tokens(
        self, requests: Sequence[Any], **options: Any
    ) -> list[Likelihood]:
        if self.score is None:
            found: list[Likelihood] = super()._loglikelihood_tokens(requests, **options)
            return found
        return self.score([self._request(*request) for request in requests])

    def _request(
        self, texts: Any, context: list[int], continuation: list[int]
    ) -> Request:
        """Cut a request from the left, as lm-eval does, where it is too long."""
        if not continuation:
            raise EvaluationError(
                f"a continuation has no token of its own: {texts!r:.200}; mend the "
                "choices of the task"
            )
        tokens = [*context, *continuation][-(self.max_length + 1) :]
        return Request(tuple(tokens[:-1]), tuple(continuation))


def make_harness_model(
    model: PreTrainedModel,
    tokenizer: Any,
    batch_size: BatchSize,
    max_length: int | None,
) -> HarnessModel:
    """Wrap the model for lm-eval; neither it nor the tokenizer is changed."""
    with quiet(), without_tying(model):
        lm = HarnessModel(
            pretrained=model,
            tokenizer=copy.deepcopy(tokenizer),  # it gets a padding token
            batch_size=_rows(batch_size),
            max_length=max_length,
            softmax_dtype="float32",  # in bfloat16, choices tie by rounding
        )
    lm.tok_encode = functools.cache(lm.tok_encode)  # prompts are the same each time
    return lm


def open_backend(folder: Path, backend: BackendSpec, batch_size: BatchSize) -> LM:
    """Load a checkpoint with another model class of lm-eval.

    Raises:
        EvaluationError: there is no such class, or it cannot load the checkpoint.
    """
    arguments = {"pretrained": str(folder), "batch_size": _rows(batch_size)}
    arguments |= backend.args
    try:
        with quiet():
            lm: LM = get_model(backend.name)(**arguments)
    except Exception as error:
        raise EvaluationError(
            f"lm-eval's model {backend.name!r} cannot load the merge: {error}; check "
            "map.backend, and that what it needs is installed"
        ) from error
    return lm


def _rows(batch_size: BatchSize) -> int:
    """Return the number of prompts in a batch; it moves answers by rounding."""
    return _GENERATING if batch_size == "auto" else batch_size


def prepare_harness(
    task: HarnessTask,
    harness_model: Callable[[int | None], Any],
    scores: Callable[[], Likelihoods],
) -> Measure:
    """Bind the task's requests to the model; the callable makes it for a longest input.

    Requests that are scored, and not generated, go to ``scores``.

    Raises:
        EvaluationError: the tokenizer lacks BOS and EOS, or the chat template.
    """
    lm = harness_model(None)
    if not isinstance(lm, HarnessModel):
        return prepare_backend(task, lm)
    kinds = {leaf.OUTPUT_TYPE for leaf in task.loaded["tasks"].values()}
    if _ROLLING in kinds and lm.max_length > _ROLLING_LENGTH:
        lm = harness_model(_ROLLING_LENGTH)
    if lm.prefix_token_id is None:
        raise EvaluationError(
            "lm-eval needs a tokenizer with a BOS or EOS token, this one has neither; "
            "set one, or measure with a perplexity task"
        )
    if task.chat:
        _apply_chat_template(task, lm)
    _warn_of_long_prompts(task, lm)
    if lm.backend == "causal" and is_scored(task.loaded):
        lm = _scored(task, lm, scores())
    return _ready(task, lm)


def _scored(
    task: HarnessTask, shared: HarnessModel, scores: Likelihoods
) -> HarnessModel:
    """Tokenise all requests now, and find how this model can score them."""
    lm, requests = copy.copy(shared), dict[Request, None]()
    lm.batch_size_per_gpu = sys.maxsize  # all windows of rolling tasks come at once

    def keep(some: Sequence[Request]) -> list[Likelihood]:
        requests.update(dict.fromkeys(some))
        return [(0.0, False)] * len(some)

    lm.score = keep
    with quiet(), separate_randomness():
        for leaf in task.loaded["tasks"].values():
            for kind in {request.request_type for request in leaf.instances}:
                getattr(lm, kind)([r for r in leaf.instances if r.request_type == kind])
    distinct = list(requests)
    lm.score = checked(fitted(scores, distinct), distinct, task.name).score_all
    return lm


def prepare_backend(task: HarnessTask, lm: Any) -> Measure:
    """Bind the task's requests to a model class of lm-eval.

    Raises:
        EvaluationError: the tokenizer lacks the chat template that the task needs.
    """
    if task.chat:
        _apply_chat_template(task, lm)
    return _ready(task, lm)


def _ready(task: HarnessTask, lm: Any) -> Measure:
    run = functools.partial(measure_harness, task, lm)
    return PreparedTask(run, sum(task.sizes.values()))


def _apply_chat_template(task: HarnessTask, lm: Any) -> None:
    if not lm.tokenizer.chat_template:
        raise EvaluationError(
            "apply_chat_template needs a tokenizer with a chat template, this one has "
            "none; leave it out, or take the tokenizer of an instruct model"
        )
    with quiet(), separate_randomness(), cached_templates():
        build_requests(
            task.loaded,
            task.limit,
            apply_chat_template=True,
            chat_template=lm.apply_chat_template,
            fewshot_as_multiturn=True,  # as the command does with a chat template
        )


def _warn_of_long_prompts(task: HarnessTask, lm: HarnessModel) -> None:
    """Warn how many prompts lm-eval will cut; also fills the cache of tokens."""
    requests = [r for leaf in task.loaded["tasks"].values() for r in leaf.instances]
    with quiet():
        n_long = sum(_is_too_long(request, lm) for request in requests)
    if n_long:
        logger.warning(
            "task %r: %d of %d prompts are too long for the %d positions of %s; "
            "lm-eval cuts them from the left",
            *(task.name, n_long, len(requests), lm.max_length),
            lm.model.name_or_path or "the model",
        )


def _is_too_long(request: Any, lm: HarnessModel) -> bool:
    if request.request_type == "loglikelihood":
        context, continuation = request.args[:2]
        return bool(len(lm.tok_encode(context + continuation)) > lm.max_length + 1)
    if request.request_type == "generate_until":
        prompt, options = request.args[:2]
        room = lm.max_length - options.get("max_gen_toks", lm.max_gen_toks)
        return bool(len(lm.tok_encode(prompt)) > room)
    return False  # rolling windows cut nothing
