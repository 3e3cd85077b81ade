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
import datetime
import functools
import itertools
import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import patch

import lm_eval
import numpy as np
import torch
from lm_eval.api import metrics
from lm_eval.api.model import LM, CacheHook
from lm_eval.api.registry import MODEL_REGISTRY, get_model
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import normalize_gen_kwargs
from transformers import LogitsProcessorList, PreTrainedModel

from mergekit_map.config.schema import BackendSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.tasks.base import (
    PreparedTask,
    plain,
    quiet,
    ratio_stderr,
    separate_randomness,
)
from mergekit_map.tasks.lm_eval_tasks import (
    ANSWER_TOKENS,
    EXPONENTIAL,
    GENERATED,
    MEANS,
    SCORED,
    HarnessTask,
    build_requests,
    cached_templates,
    with_documents,
)
from mergekit_map.tasks.loglikelihood import (
    BatchSize,
    Likelihood,
    Request,
    checked,
    likelihoods,
)
from mergekit_map.types import Answers, Documents, Measurement
from mergekit_map.utils.progress import step

logger = logging.getLogger(__name__)
_ROLLING = "loglikelihood_rolling"
_ROLLING_LENGTH = 2048
# Templates print the date, but prompts of two days must be the same. This one is of
# Llama 3.2's template where there is no clock.
_DATE = datetime.date(2024, 7, 26)
_CLOCK = "transformers.utils.chat_template_utils.datetime"
_DEFAULT_ROWS = 8  # prompts that are answered together, where the user sets no number
_GROUPS = 50  # of documents, for standard errors: bleu takes a tenth of a second
BACKENDS: Collection[str] = MODEL_REGISTRY  # the model classes of lm-eval, by name
Samples: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]  # of lm-eval, by task
Places: TypeAlias = Mapping[str, Sequence[int]]  # among its documents, by task


class HarnessModel(HFLM):  # type: ignore[misc]
    """lm-eval's model of a model in memory, scored by ``score`` where that is set.

    lm-eval builds and tokenises the requests, and judges the answers.
    """

    batch: BatchSize
    score: Callable[[Sequence[Request]], list[Likelihood]] | None = None

    def generate_until(self, requests: Sequence[Any], **options: Any) -> list[str]:
        """Generate answers, and report how many there are."""
        hook, done = CacheHook(None), itertools.count(1)
        # lm-eval passes on each answer to be cached.
        hook.add_partial = lambda *_: step(next(done), len(requests))
        self.set_cache_hook(hook)
        found: list[str] = super().generate_until(requests, **options)
        return found

    def _loglikelihood_tokens(
        self, requests: Sequence[Any], **options: Any
    ) -> list[Likelihood]:
        found: list[Likelihood]
        if self.score is None:
            found = super()._loglikelihood_tokens(requests, **options)
        else:
            found = self.score([self._request(*request) for request in requests])
        _refuse_nan(torch.tensor([score for score, _ in found]))
        return found

    def _model_generate(self, *inputs: Any, **options: Any) -> Any:
        def checked_logits(_: Any, logits: torch.Tensor) -> torch.Tensor:
            _refuse_nan(logits)
            return logits

        options["logits_processor"] = LogitsProcessorList([checked_logits])
        return super()._model_generate(*inputs, **options)

    def _request(self, texts: Any, context: list[int], targets: list[int]) -> Request:
        """Cut a request from the left, as lm-eval does, where it is too long."""
        if not 0 < len(targets) <= self.max_length:
            raise EvaluationError(
                f"a continuation must have 1 to {self.max_length} tokens, which the "
                f"model takes, got {len(targets)}: {texts!r:.200}; mend the task"
            )
        tokens = [*context, *targets][-(self.max_length + 1) :]
        return Request(tuple(tokens[:-1]), tuple(targets))


def _refuse_nan(numbers: torch.Tensor) -> None:
    """Raise EvaluationError for NaN, which lm-eval takes for the likeliest answer."""
    if numbers.isnan().any():
        raise EvaluationError("the model predicts NaN: its numbers overflow")


def wrap_model(
    model: PreTrainedModel, tokenizer: Any, batch_size: BatchSize
) -> HarnessModel:
    """Wrap the model for lm-eval; neither it nor the tokenizer is changed."""
    # HFLM ties weights: it would overwrite an untied head, and parameters in use.
    with quiet(), patch.object(model, "tie_weights"):
        lm = HarnessModel(
            pretrained=model,
            tokenizer=copy.deepcopy(tokenizer),  # it gets a padding token
            batch_size=_rows(batch_size),
            softmax_dtype="float32",  # in bfloat16, choices tie by rounding
        )
    lm.batch = batch_size
    # Prompts are the same each time; lists of them share their ints.
    same, encode = dict[int, int]().setdefault, lm.tok_encode
    lm.tok_encode = functools.cache(
        lambda *texts, **options: [same(t, t) for t in encode(*texts, **options)]
    )
    return lm


def open_backend(folder: Path, backend: BackendSpec, batch_size: BatchSize) -> LM:
    """Load a checkpoint with a model class of lm-eval, or raise EvaluationError."""
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
    return _DEFAULT_ROWS if batch_size == "auto" else batch_size


def prepare_harness(task: HarnessTask, lm: Any) -> PreparedTask:
    """Bind the task's requests to a model of lm-eval, or raise EvaluationError."""
    if isinstance(lm, HarnessModel) and lm.prefix_token_id is None:
        raise EvaluationError(
            "lm-eval needs a tokenizer with a BOS or EOS token, this one has neither; "
            "set one, or measure with a perplexity task"
        )
    if task.spec.apply_chat_template:
        _apply_chat_template(task, lm)
    if isinstance(lm, HarnessModel):
        lm = copy.copy(lm)
        if _ROLLING in task.kinds:
            lm._max_length = min(lm.max_length, _ROLLING_LENGTH)
        _warn_of_long_prompts(task, lm)
        if lm.backend == "causal" and task.kinds <= SCORED:
            _score_by_us(task, lm)
    return PreparedTask(functools.partial(measure_harness, task, lm), task.size)


def _score_by_us(task: HarnessTask, lm: HarnessModel) -> None:
    """Tokenise all requests now, and find how this model can score them."""
    requests = list[Request]()
    lm.batch_size_per_gpu = sys.maxsize  # all windows of rolling tasks come at once

    def collect(some: Sequence[Request]) -> list[Likelihood]:
        requests.extend(some)
        return [(0.0, False)] * len(some)

    lm.score = collect
    with quiet(), separate_randomness():
        for kind in task.kinds:
            getattr(lm, kind)([r for r in task.requests if r.request_type == kind])
    scores = likelihoods(lm.model, lm.batch, requests, in_trees=True)
    lm.score = checked(scores, requests, task.name).score_all


def _apply_chat_template(task: HarnessTask, lm: Any) -> None:
    if not lm.tokenizer.chat_template:
        raise EvaluationError(
            "apply_chat_template needs a tokenizer with a chat template, this one has "
            "none; leave it out, or take the tokenizer of an instruct model"
        )
    clock = patch(_CLOCK, SimpleNamespace(now=lambda: _DATE))
    with quiet(), separate_randomness(), cached_templates(), clock:
        build_requests(
            task.loaded,
            task.spec.limit,
            apply_chat_template=True,
            chat_template=lm.apply_chat_template,
            fewshot_as_multiturn=True,  # as the command does with a chat template
        )


def _warn_of_long_prompts(task: HarnessTask, lm: HarnessModel) -> None:
    with quiet():
        n_long = sum(_is_too_long(request, lm) for request in task.requests)
    if n_long:
        logger.warning(
            "task %r: %d of %d prompts are too long for the %d positions of %s; "
            "lm-eval cuts them from the left",
            *(task.name, n_long, len(task.requests), lm.max_length),
            lm.model.name_or_path or "the model",
        )


def _is_too_long(request: Any, lm: HarnessModel) -> bool:
    if request.request_type == _ROLLING:
        return False  # windows cut nothing
    if request.request_type == GENERATED:
        text, options = request.args[:2]
        answer = normalize_gen_kwargs(options, lm.max_gen_toks)["max_gen_toks"]
        if (room := lm.max_length - answer) <= 0:
            raise EvaluationError(
                f"answers of up to {answer} tokens leave no room for a prompt in the "
                f"{lm.max_length} positions of the model; lower max_gen_toks in a task "
                "YAML of your own"
            )
    else:
        context, continuation = request.args[:2]
        text = context + continuation
        room = lm.max_length + 1  # the last token is only predicted
    return bool(len(lm.tok_encode(text)) > room)


def measure_harness(task: HarnessTask, lm: Any, documents: Documents) -> Measurement:
    """Evaluate all documents, or those at these places in all samples.

    For some documents, the value is their average alone. Raises EvaluationError where
    they do not define it.
    """
    places = _divide(task, documents)
    results = _evaluate(task, lm, None if documents is None else places)
    readings = results["results"][task.subject]
    samples = _read_samples(task, results, lm)
    answers = _read_answers(task, samples, places, documents)
    if documents is None and task.reading in readings:
        value = float(readings[task.reading])
    elif answers is not None:  # of some documents, or lengths of answers
        value = answers.mean
    else:
        raise EvaluationError(
            f"lm-eval has no {task.spec.metric!r} of some of these documents, or gives "
            "them no weight, so that only all of them can be measured"
        )
    if (stderr := _standard_error(task, samples)) is None and answers is not None:
        weights = np.array(answers.weights)
        stderr = ratio_stderr(np.array(answers.values) * weights, weights)
        if stderr is not None and answers.exponential:
            stderr *= answers.mean
    return Measurement(
        value=value,
        stderr=stderr,
        n=sum(len(found) for found in samples.values()),
        details={
            key: float(value)
            for key, value in readings.items()
            if "," in key and key != task.reading and isinstance(value, Real)
        },
        samples=tuple(
            _record(task, leaf, sample)
            for leaf, found in samples.items()
            for sample in found
        ),
        answers=answers,
    )


def _divide(task: HarnessTask, documents: Documents) -> dict[str, list[int]]:
    """Return the places of documents, counted through all tasks, by task with some."""
    places: dict[str, list[int]] = {}
    start = 0
    wanted = set(range(task.size) if documents is None else documents)
    for leaf, size in task.sizes.items():
        if chosen := [i for i in range(size) if start + i in wanted]:
            places[leaf] = chosen
        start += size
    return places


def _evaluate(task: HarnessTask, lm: Any, places: Places | None) -> Mapping[str, Any]:
    with quiet(), separate_randomness(), cached_templates():
        # Never use_cache or cache_requests: their keys do not contain the model.
        results: Mapping[str, Any] = lm_eval.evaluate(
            lm=lm,
            task_dict=with_documents(task.loaded, places),
            bootstrap_iters=0,
            log_samples=True,
            confirm_run_unsafe_code=task.spec.confirm_run_unsafe_code,
        )
    return results


def _read_samples(task: HarnessTask, results: Mapping[str, Any], lm: Any) -> Samples:
    metric = task.spec.metric
    _, _, filter_name = task.reading.partition(",")
    samples = {}
    for leaf, of_leaf in results["samples"].items():
        if metric == ANSWER_TOKENS:
            found = _with_lengths(of_leaf, lm.tokenizer)
        else:
            found = [s for s in of_leaf if s["filter"] == filter_name and metric in s]
        if found:
            samples[leaf] = found
    return samples


def _with_lengths(
    found: Sequence[Mapping[str, Any]], tokenizer: Any
) -> list[dict[str, Any]]:
    """Add the length of its answer to each sample of a task.

    The text is what lm-eval leaves of it, cut at its stop strings; of several answers
    to a document, their mean counts.
    """
    measured = []
    for sample in found:
        if sample["filter"] == found[0]["filter"]:
            texts = [text for answers in sample["resps"] for text in answers]
            tokens = [tokenizer.encode(t, add_special_tokens=False) for t in texts]
            mean = sum(map(len, tokens)) / len(tokens)
            measured.append({**sample, ANSWER_TOKENS: mean})
    return measured


def _read_answers(
    task: HarnessTask, samples: Samples, places: Places, documents: Documents
) -> Answers | None:
    """Read the scores of the measured documents.

    None where the value is no average of documents, where some of them have no part
    in it, and where one has no weight.
    """
    if not task.partial:
        return None
    values, weights = list[float](), list[float]()
    ids = range(task.size) if documents is None else documents
    exponential = False
    for leaf, of_leaf in places.items():
        results = [sample[task.spec.metric] for sample in samples.get(leaf, ())]
        aggregation = task.aggregation(leaf)
        totals, sizes = _sums(aggregation, results)
        if len(results) != len(of_leaf) or not (sizes > 0).all():
            return None
        # Of a document of this task, 1 on average over all that are measured.
        weight = 1.0 if task.by_size else len(ids) / len(places) / len(of_leaf)
        values += (totals / sizes).tolist()
        weights += (sizes * weight).tolist()
        exponential = aggregation in EXPONENTIAL
    return Answers(tuple(ids), tuple(values), tuple(weights), exponential)


def _standard_error(task: HarnessTask, samples: Samples) -> float | None:
    """Return the error of all documents, which lm-eval pools from those of tasks."""
    errors, sizes = list[float](), list[int]()
    for leaf, found in samples.items():
        results = [sample[task.spec.metric] for sample in found]
        if (error := _leaf_error(task.aggregation(leaf), results)) is None:
            return None
        errors.append(error)
        sizes.append(len(found))
    if task.subject not in task.loaded["groups"]:
        return errors[0]
    if task.by_size:
        return float(metrics.pooled_sample_stderr(errors, sizes))
    return float(metrics.unweighted_mean_stderr(errors))


def _sums(
    aggregation: Callable[..., float], results: Sequence[Any]
) -> tuple[FloatArray, FloatArray]:
    """Return what is summed over the documents of a task, and their weights; (n,) each.

    The ratio of the two sums is lm-eval's value, or the logarithm of it.
    """
    array = np.array(results, np.float64)  # (n,), or (n, 2) for a ratio of sums
    totals, weights = array.T if array.ndim == 2 else (array, np.ones(len(array)))
    return totals / MEANS[aggregation], weights


def _leaf_error(
    aggregation: Callable[..., float], results: Sequence[Any]
) -> float | None:
    """Return lm-eval's closed form, or that of an exponential or ratio of means.

    Others of lm-eval (f1, mcc, bleu), which it bootstraps, have that of the jackknife.
    Of a median and of a task's own none is known: the latter may take minutes.
    """
    if len(results) < 2:
        return None
    if aggregation not in MEANS:
        is_own = aggregation.__module__ == metrics.__name__
        is_smooth = is_own and aggregation is not metrics.median
        return _jackknife(aggregation, results) if is_smooth else None
    if aggregation is metrics.mean:
        return float(metrics.mean_stderr(results))
    error = ratio_stderr(*_sums(aggregation, results))
    if error is None or aggregation not in EXPONENTIAL:
        return error
    return error * float(aggregation(results))


def _jackknife(aggregate: Callable[..., float], results: Sequence[Any]) -> float | None:
    """Leave out groups of documents in turn; None where some value is undefined."""
    count = min(len(results), _GROUPS)
    with quiet():
        values = [
            float(aggregate([r for i, r in enumerate(results) if i not in group]))
            for group in ({*range(i, len(results), count)} for i in range(count))
        ]
    error = float(np.std(values) * np.sqrt(count - 1))
    return error if error < np.inf else None


def _record(task: HarnessTask, leaf: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    metric = task.spec.metric
    record = {
        "task": leaf,
        "doc_id": sample["doc_id"],
        "doc_hash": sample["doc_hash"],
        metric: plain(sample[metric]),
    }
    if task.loaded["tasks"][leaf].OUTPUT_TYPE == "multiple_choice":
        record["loglikelihoods"] = [float(one[0][0]) for one in sample["resps"]]
    return record
