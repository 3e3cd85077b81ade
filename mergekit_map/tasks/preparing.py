"""Preparation of loaded tasks for one model in memory."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from mergekit_map.config.schema import BackendSpec
from mergekit_map.errors import EvaluationError, in_words
from mergekit_map.tasks.base import Documents, PreparedTask, fingerprint
from mergekit_map.tasks.lm_eval_model import (
    make_harness_model,
    open_backend,
    prepare_backend,
    prepare_harness,
)
from mergekit_map.tasks.lm_eval_tasks import HarnessTask
from mergekit_map.tasks.loading import LoadedTask
from mergekit_map.tasks.loglikelihood import (
    BatchSize,
    Likelihoods,
    budget_of,
    keep_freed_memory,
    likelihoods,
)
from mergekit_map.tasks.perplexity import PerplexityText, prepare_perplexity
from mergekit_map.tasks.python_function import (
    PythonFunction,
    check_sizes,
    prepare_function,
)
from mergekit_map.types import Differentiate, Measure, Measurement, Metric

_OUT_OF_MEMORY = (
    "; lower batch_size, or the task's block, or with gradients set "
    "checkpoint_activations"
)


class Generations:
    """The generated answers of one model; forgotten when its weights change.

    All requests of a call are cached together, and none by itself: how they are
    batched moves an answer by its rounding, and a search that was stopped between two
    tasks must go on to the same numbers.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def forget(self) -> None:
        """Forget all answers, as the model has changed."""
        self._known.clear()

    def remembered(
        self, generate: Callable[..., list[str]], place: str
    ) -> Callable[..., list[str]]:
        """Generate the answers that are not cached for the model called ``place``."""

        def answer(requests: Sequence[Any], *args: Any, **options: Any) -> list[str]:
            asked = fingerprint(place, [request.args for request in requests])
            if asked not in self._known:
                self._known[asked] = generate(requests, *args, **options)
            return list(self._known[asked])

        return answer


def prepare_tasks(
    tasks: Mapping[str, LoadedTask],
    model: PreTrainedModel,
    tokenizer: Any,
    *,
    batch_size: BatchSize = "auto",
    backend: BackendSpec | None = None,
    differentiate: Differentiate | None = None,
    generations: Generations | None = None,
) -> dict[str, Measure]:
    """Tokenise and build all requests once; each result measures the present model.

    The model is put into evaluation mode and otherwise left alone: overwrite its
    weights in place between measurements. Prepare again for another model. With a
    ``backend``, lm-eval tasks are measured by that, on the folder the model is from.
    With ``generations``, tasks that have the model generate the same share it; they
    must be forgotten when its weights change. With ``differentiate``, tasks whose
    metric is differentiable give a gradient too.

    Raises:
        EvaluationError: a task cannot be measured on this model; a measurement
            raises it too. It names the task and the model.
    """
    model.train(mode=False)
    if model.device.type == "cpu":
        keep_freed_memory()

    harness_model = _harness_models(model, tokenizer, batch_size, backend, generations)

    @functools.cache
    def scores() -> Likelihoods:
        return likelihoods(model, budget_of(batch_size, model.device))

    measures: dict[str, Measure] = {}
    for name, task in tasks.items():
        with _located(name, model):
            if tokenizer is None and not isinstance(task, PythonFunction):
                raise EvaluationError(
                    "only language models, which have a tokenizer, have this measured; "
                    "measure this model with a task of the kind 'python'"
                )
            match task:
                case PerplexityText():
                    measure = prepare_perplexity(
                        task, model, tokenizer, batch_size, differentiate
                    )
                case HarnessTask():
                    measure = prepare_harness(task, harness_model, scores)
                case PythonFunction():
                    measure = prepare_function(task, model, tokenizer)
        measures[name] = _checked(task, model, measure)
    return measures


def _harness_models(
    model: PreTrainedModel,
    tokenizer: Any,
    batch_size: BatchSize,
    backend: BackendSpec | None,
    generations: Generations | None,
) -> Callable[..., Any]:
    """Return a function that makes lm-eval's model for a longest input, once each."""

    @functools.cache
    def harness_model(max_length: int | None) -> Any:
        if backend is None:
            lm: Any = make_harness_model(model, tokenizer, batch_size, max_length)
        elif max_length is not None:  # which is the backend's own matter
            return harness_model(None)
        else:
            lm = open_backend(Path(str(model.name_or_path)), backend, batch_size)
        if generations is not None:
            lm.generate_until = generations.remembered(
                lm.generate_until, str(max_length)
            )
        return lm

    return harness_model


def prepare_generating(
    tasks: Mapping[str, LoadedTask], lm: Any, generations: Generations
) -> dict[str, Measure]:
    """Prepare tasks that generate for a model of lm-eval that is no Hugging Face model.

    ``generations`` must be forgotten when its weights change.

    Raises:
        EvaluationError: its tokenizer has no chat template, and a task needs one.
    """
    lm.generate_until = generations.remembered(lm.generate_until, "")
    measures: dict[str, Measure] = {}
    for name, task in tasks.items():
        assert isinstance(task, HarnessTask)
        with _located(name, lm.tokenizer):
            measure = prepare_backend(task, lm)
        measures[name] = _checked(task, lm.tokenizer, measure)
    return measures


def _checked(task: LoadedTask, model: Any, measure: Measure) -> PreparedTask:
    """Name the task and the model in errors, and refuse impossible values.

    The caller judges NaN and infinity.
    """

    def run(documents: Documents) -> Measurement:
        with _located(task.name, model):
            measurement = measure(documents)
            _check_value(task.metric, measurement)
        return measurement

    return PreparedTask(run, measure.size)


def _check_value(metric: Metric, measurement: Measurement) -> None:
    value, stderr = measurement.value, measurement.stderr or 0.0
    check_sizes((value, stderr))
    lower, upper = metric.bounds
    if math.isfinite(value) and not lower <= value <= upper:
        raise EvaluationError(
            f"values must lie in [{metric.lower}, {metric.upper}], got {value}; "
            "state the range of the metric with 'range:'"
        )


@contextlib.contextmanager
def _located(name: str, model: Any) -> Iterator[None]:
    """Add the names of task and model to an error."""
    try:
        yield
    except EvaluationError as error:
        raise EvaluationError(f"{_place(name, model)}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit, too, is of the task and not of the search
        hint = _OUT_OF_MEMORY if isinstance(error, torch.OutOfMemoryError) else ""
        raise EvaluationError(
            f"{_place(name, model)}: could not be measured: {in_words(error)}{hint}"
        ) from error


def _place(name: str, model: Any) -> str:
    # Transformers looks long for the name, which is wanted where something failed.
    return f"task {name!r} on model {model.name_or_path or type(model).__name__!r}"
