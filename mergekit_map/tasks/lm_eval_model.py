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
import itertools
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import lm_eval
import numpy as np
from lm_eval.api import metrics
from lm_eval.api.model import LM
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from transformers import PreTrainedModel

from mergekit_map.config.schema import BackendSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.tasks.base import Documents, PreparedTask, ratio_standard_error
from mergekit_map.tasks.isolation import interruptible, quiet, separate_randomness
from mergekit_map.tasks.lm_eval_patches import (
    asking,
    build_requests,
    cached_templates,
    without_tying,
)
from mergekit_map.tasks.lm_eval_tasks import (
    ANSWER_TOKENS,
    Average,
    HarnessTask,
    aggregation_of,
    average,
    is_scored,
    with_lengths,
)
from mergekit_map.tasks.loglikelihood import (
    BatchSize,
    Likelihood,
    Likelihoods,
    checked,
    fitted,
)
from mergekit_map.tasks.prefix_tree import Request
from mergekit_map.types import Answers, Measure, Measurement

logger = logging.getLogger(__name__)
_ROLLING = "loglikelihood_rolling"
_ROLLING_LENGTH = 2048
_GENERATING = 8  # rows, where the user leaves it to us
Samples: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]  # of lm-eval, by task
Asked: TypeAlias = Mapping[str, Sequence[int]]  # positions among its documents, by task


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


def measure_harness(task: HarnessTask, lm: Any, documents: Documents) -> Measurement:
    """Evaluate all documents, or those at these places in all samples.

    For some documents, the value is their average alone.

    Raises:
        EvaluationError: some documents do not define the value.
    """
    asked = _divide(task, documents)
    results = _evaluate(task, lm, None if documents is None else asked)
    readings = results["results"][task.subject]
    samples = _samples_read(task, results, lm)
    measured = Measurement(
        value=_value(task, readings, samples),
        stderr=None,
        n=sum(len(found) for found in samples.values()),
        details={
            key: float(value)
            for key, value in readings.items()
            if "," in key and key != task.reading and isinstance(value, Real)
        },
        samples=tuple(
            _record(sample, leaf, task.metric_name, task.loaded["tasks"][leaf])
            for leaf, found in samples.items()
            for sample in found
        ),
        answers=_answers(task, samples, asked),
    )
    if documents is None:
        return replace(measured, stderr=_standard_error(task, samples))
    return _of_some(task, measured)


def _evaluate(task: HarnessTask, lm: Any, asked: Asked | None) -> Mapping[str, Any]:
    with ExitStack() as stack:
        for context in (quiet(), separate_randomness(), cached_templates()):
            stack.enter_context(context)
        stack.enter_context(interruptible(lm))
        loaded = task.loaded
        if asked is not None:
            loaded = stack.enter_context(asking(loaded, asked))
        # Never use_cache or cache_requests: their keys do not contain the model.
        results: Mapping[str, Any] = lm_eval.evaluate(
            lm=lm,
            task_dict=loaded,
            limit=task.limit,
            bootstrap_iters=0,
            log_samples=True,
            confirm_run_unsafe_code=task.may_run_code,
        )
    return results


def _value(task: HarnessTask, readings: Mapping[str, Any], samples: Samples) -> float:
    """Return the value; that of lengths is the mean over all documents."""
    if task.metric_name != ANSWER_TOKENS:
        return float(readings[task.reading])
    lengths = [s[ANSWER_TOKENS] for found in samples.values() for s in found]
    return math.fsum(lengths) / len(lengths)


def _samples_read(task: HarnessTask, results: Mapping[str, Any], lm: Any) -> Samples:
    metric, _, filter_name = task.reading.partition(",")
    if metric == ANSWER_TOKENS:
        found = results["samples"]
        return {leaf: with_lengths(found[leaf], lm.tokenizer) for leaf in found}
    return {
        leaf: [s for s in found if s["filter"] == filter_name and metric in s]
        for leaf, found in results["samples"].items()
    }


def _divide(task: HarnessTask, documents: Sequence[int] | None) -> dict[str, list[int]]:
    """Split documents counted through all tasks into tasks and places in them.

    Tasks without documents are left out.
    """
    asked: dict[str, list[int]] = {}
    start = 0
    wanted = None if documents is None else set(documents)
    for leaf, size in task.sizes.items():
        places = range(size)
        chosen = [i for i in places if wanted is None or start + i in wanted]
        if chosen:
            asked[leaf] = chosen
        start += size
    return asked


def _answers(task: HarnessTask, samples: Samples, asked: Asked) -> Answers | None:
    """Read the scores of the measured documents.

    None where the value is no average of documents, where some of them have no part
    in it, and where one has no weight.
    """
    found = {leaf: some for leaf, some in samples.items() if some}
    if not task.partial or _counts(found) != _counts(asked):
        return None
    metric = task.metric_name
    averages = [
        average(
            aggregation_of(task.loaded["tasks"][leaf], metric),
            [sample[metric] for sample in some],
        )
        for leaf, some in found.items()
    ]
    known = [one for one in averages if one is not None]
    if not all((one.weights > 0).all() for one in known):
        return None
    scales = _scales(task)
    return Answers(
        ids=_ids(task, asked),
        values=_join([one.totals / one.weights for one in known]),
        weights=_join(
            [one.weights * scales[leaf] for leaf, one in zip(found, known, strict=True)]
        ),
        exponential=known[0].exponential,
    )


def _shares(task: HarnessTask, sizes: Sequence[int]) -> list[float]:
    """Return the weights of the parts of a group; a task by itself has one."""
    if task.subject not in task.loaded["groups"]:
        return [1.0]
    counts = sizes if _counts_by_size(task) else [1] * len(sizes)
    return [count / sum(counts) for count in counts]


def _counts_by_size(task: HarnessTask) -> bool:
    """Whether all documents of a group count alike, and not all of its tasks."""
    group = task.loaded["groups"][task.subject]
    entries = [c for c in group.aggregate_metric_list if c.metric == task.metric_name]
    # The last entry of a metric is the one whose value lm-eval keeps.
    return task.metric_name == ANSWER_TOKENS or bool(entries[-1].weight_by_size)


def _counts(parts: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    return {name: len(part) for name, part in parts.items()}


def _scales(task: HarnessTask) -> dict[str, float]:
    """Return how much a document of each task counts, 1 on average over all of them."""
    sizes = list(task.sizes.values())
    weighed = zip(task.sizes.items(), _shares(task, sizes), strict=True)
    return {leaf: sum(sizes) * share / size for (leaf, size), share in weighed}


def _ids(task: HarnessTask, asked: Asked) -> tuple[int, ...]:
    starts = itertools.accumulate(task.sizes.values(), initial=0)
    start_of = dict(zip(task.sizes, starts, strict=False))
    return tuple(start_of[leaf] + i for leaf, places in asked.items() for i in places)


def _join(parts: Sequence[Any]) -> tuple[float, ...]:
    return tuple(np.concatenate(parts).tolist())


def _of_some(task: HarnessTask, measured: Measurement) -> Measurement:
    if measured.answers is None:
        raise EvaluationError(
            f"lm-eval has no {task.metric_name!r} of some of these documents, or gives "
            "them no weight, so that only all of them can be measured"
        )
    weights = np.array(measured.answers.weights)
    totals = np.array(measured.answers.values) * weights
    own = Average(totals, weights, measured.answers.exponential)
    error = ratio_standard_error(totals.tolist(), weights.tolist())
    if error is not None and own.exponential:
        error *= own.value
    return replace(measured, value=own.value, stderr=error)


def _record(
    sample: Mapping[str, Any], leaf: str, metric: str, of: Any
) -> dict[str, Any]:
    record = {
        "task": leaf,
        "doc_id": sample["doc_id"],
        "doc_hash": sample["doc_hash"],
        metric: _plain(sample[metric]),
    }
    if of.OUTPUT_TYPE == "multiple_choice":
        record["loglikelihoods"] = [
            float(loglikelihood) for loglikelihood, _ in sample["filtered_resps"]
        ]
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, int | float | str | None) else str(value)


def _standard_error(task: HarnessTask, samples: Samples) -> float | None:
    metric = task.metric_name
    sizes, known = [], []
    for leaf, found in samples.items():
        if found:
            mean = aggregation_of(task.loaded["tasks"][leaf], metric)
            error = _leaf_standard_error(mean, [sample[metric] for sample in found])
            if error is None:
                return None
            sizes.append(len(found))
            known.append(error)
    if task.subject not in task.loaded["groups"]:
        return known[0]
    if _counts_by_size(task):
        return float(metrics.pooled_sample_stderr(known, sizes))
    return float(metrics.unweighted_mean_stderr(known))


def _leaf_standard_error(aggregation: Any, values: Sequence[Any]) -> float | None:
    """Compute lm-eval's closed form, or that of an exponential or ratio of means.

    lm-eval bootstraps ``perplexity`` and gives no error for the two weighted ones;
    for the others (f1, mcc, bleu, a task's own) no error is known.
    """
    if len(values) < 2:
        return None
    if aggregation is metrics.mean:
        return float(metrics.mean_stderr(values))
    if aggregation is metrics.perplexity:
        return float(metrics.perplexity(values) * metrics.mean_stderr(values))
    if aggregation in (metrics.weighted_perplexity, metrics.bits_per_byte):
        # Both are functions of one ratio; its error times the slope of the function.
        slope = (
            1 / math.log(2)
            if aggregation is metrics.bits_per_byte
            else float(aggregation(values))
        )
        error = ratio_standard_error(*zip(*values, strict=True))
        return None if error is None else error * slope
    return None
