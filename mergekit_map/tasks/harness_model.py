"""Measure a model in memory with lm-evaluation-harness.

Values equal those of the command ``lm_eval --model hf --model_args
pretrained=...,softmax_dtype=float32 --batch_size B`` on the same checkpoint and
documents. One difference is wanted: rolling tasks see at most 2048 tokens at a time
(as with ``max_length=2048``), where lm-eval takes the model's longest input and would
hold the logits of all of it.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
from lm_eval.api import metrics
from lm_eval.api.model import LM
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from transformers import PreTrainedModel

from mergekit_map.config.specs import BackendSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Measure, Measurement
from mergekit_map.tasks.harness import HarnessTask
from mergekit_map.tasks.lm_eval_patches import (
    build_requests,
    cached_templates,
    without_tying,
)
from mergekit_map.tasks.standard_error import ratio_standard_error
from mergekit_map.tasks.surroundings import quiet, separate_randomness

logger = logging.getLogger(__name__)

_ROLLING = "loglikelihood_rolling"
_ROLLING_LENGTH = 2048


def make_harness_model(
    model: PreTrainedModel, tokenizer: Any, batch_size: int, max_length: int | None
) -> HFLM:
    """Wrap the model for lm-eval; neither it nor the tokenizer is changed."""
    with quiet(), without_tying(model):
        lm = HFLM(
            pretrained=model,
            tokenizer=copy.deepcopy(tokenizer),  # it gets a padding token
            batch_size=batch_size,
            max_length=max_length,
            softmax_dtype="float32",  # in bfloat16, choices tie by rounding
        )
    lm.tok_encode = functools.cache(lm.tok_encode)  # prompts are the same each time
    return lm


def open_backend(folder: Path, backend: BackendSpec, batch_size: int) -> LM:
    """Let another model class of lm-eval load a checkpoint.

    Raises:
        EvaluationError: there is no such class, or it cannot load the checkpoint.
    """
    arguments = {"pretrained": str(folder), "batch_size": batch_size, **backend.args}
    try:
        with quiet():
            lm: LM = get_model(backend.name)(**arguments)
    except Exception as error:
        raise EvaluationError(
            f"lm-eval's model {backend.name!r} cannot load the merge: {error}; check "
            "map.backend, and that what it needs is installed"
        ) from error
    return lm


def prepare_harness(
    task: HarnessTask, harness_model: Callable[[int | None], Any]
) -> Measure:
    """Bind the task's requests to the model, made for a longest input by the callable.

    Raises:
        EvaluationError: the tokenizer lacks BOS and EOS, or the chat template.
    """
    lm = harness_model(None)
    if not isinstance(lm, HFLM):
        return functools.partial(_measure, task, lm)  # a backend keeps its own rules
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
    return functools.partial(_measure, task, lm)


def _apply_chat_template(task: HarnessTask, lm: HFLM) -> None:
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


def _warn_of_long_prompts(task: HarnessTask, lm: HFLM) -> None:
    """Say how many prompts lm-eval will cut; also fills the cache of tokens."""
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


def _is_too_long(request: Any, lm: HFLM) -> bool:
    if request.request_type == "loglikelihood":
        context, continuation = request.args[:2]
        return bool(len(lm.tok_encode(context + continuation)) > lm.max_length + 1)
    if request.request_type == "generate_until":
        prompt, options = request.args[:2]
        room = lm.max_length - options.get("max_gen_toks", lm.max_gen_toks)
        return bool(len(lm.tok_encode(prompt)) > room)
    return False  # rolling windows cut nothing


def _measure(task: HarnessTask, lm: HFLM) -> Measurement:
    with quiet(), separate_randomness(), cached_templates():
        # Never use_cache or cache_requests: their keys do not contain the model.
        results = lm_eval.evaluate(
            lm=lm,
            task_dict=task.loaded,
            limit=task.limit,
            bootstrap_iters=0,
            log_samples=True,
        )
    metric, _, filter_name = task.reading.partition(",")
    readings = results["results"][task.subject]
    samples = {
        leaf: [s for s in found if s["filter"] == filter_name and metric in s]
        for leaf, found in results["samples"].items()
    }
    return Measurement(
        value=float(readings[task.reading]),
        stderr=_standard_error(task, metric, samples),
        n=sum(len(found) for found in samples.values()),
        details={
            key: float(value)
            for key, value in readings.items()
            if "," in key and key != task.reading and isinstance(value, Real)
        },
        samples=tuple(
            _record(sample, leaf, metric, task.loaded["tasks"][leaf].OUTPUT_TYPE)
            for leaf, found in samples.items()
            for sample in found
        ),
    )


def _record(
    sample: Mapping[str, Any], leaf: str, metric: str, kind: str
) -> dict[str, Any]:
    record = {
        "task": leaf,
        "doc_id": sample["doc_id"],
        "doc_hash": sample["doc_hash"],
        metric: _plain(sample[metric]),
    }
    if kind == "multiple_choice":
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


def _standard_error(
    task: HarnessTask, metric: str, samples: Mapping[str, Sequence[Mapping[str, Any]]]
) -> float | None:
    sizes, known = [], []
    for leaf, found in samples.items():
        if found:
            mean = task.loaded["tasks"][leaf].aggregation().get(metric, metrics.mean)
            error = _leaf_standard_error(mean, [sample[metric] for sample in found])
            if error is None:
                return None
            sizes.append(len(found))
            known.append(error)
    group = task.loaded["groups"].get(task.subject)
    if group is None:
        return known[0]
    # The last entry of a metric is the one whose value lm-eval keeps.
    chosen = [c for c in group.aggregate_metric_list if c.metric == metric][-1]
    if chosen.weight_by_size:
        return float(metrics.pooled_sample_stderr(known, sizes))
    return float(metrics.unweighted_mean_stderr(known))


def _leaf_standard_error(aggregation: Any, values: Sequence[Any]) -> float | None:
    """Compute lm-eval's closed form, or that of an exponential or ratio of means.

    lm-eval bootstraps ``perplexity`` and gives no error for the two weighted ones;
    for the others (f1, mcc, bleu, a task's own) none is known here either.
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
