"""Tie loaded tasks to one model in memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel

from mergekit_map.config.specs import BackendSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Differentiate, Measure, Measurement, Metric
from mergekit_map.tasks.function import PythonFunction, prepare_function
from mergekit_map.tasks.harness import HarnessTask
from mergekit_map.tasks.harness_model import (
    make_harness_model,
    open_backend,
    prepare_harness,
)
from mergekit_map.tasks.loading import LoadedTask
from mergekit_map.tasks.perplexity import PerplexityText, prepare_perplexity

_OUT_OF_MEMORY = (
    "; lower batch_size, or the task's block, or with gradients set "
    "checkpoint_activations"
)

T = TypeVar("T")


def prepare_tasks(
    tasks: Mapping[str, LoadedTask],
    model: PreTrainedModel,
    tokenizer: Any,
    *,
    batch_size: int,
    backend: BackendSpec | None = None,
    differentiate: Differentiate | None = None,
) -> dict[str, Measure]:
    """Tokenise and build all requests once; each result measures the model as it is.

    The model is put into evaluation mode and otherwise left alone: overwrite its
    weights in place between measurements. Prepare again for another model. With a
    ``backend``, lm-eval tasks are measured by that, on the folder the model is from.
    With ``differentiate``, tasks whose metric is differentiable give a gradient too.

    Raises:
        EvaluationError: a task cannot be measured on this model; a measurement
            raises it too. It names the task and the model.
    """
    model.train(mode=False)

    @functools.cache  # shared by all lm-eval tasks
    def opened_backend() -> Any:
        assert backend is not None
        return open_backend(Path(str(model.name_or_path)), backend, batch_size)

    @functools.cache
    def harness_model(max_length: int | None) -> Any:
        if backend is not None:
            return opened_backend()
        return make_harness_model(model, tokenizer, batch_size, max_length)

    measures: dict[str, Measure] = {}
    for name, task in tasks.items():
        prepare = functools.partial(
            _prepare, task, model, tokenizer, harness_model, differentiate
        )
        measure = _locate(name, model, prepare)
        measures[name] = functools.partial(_measure, name, model, task.metric, measure)
    return measures


def _prepare(
    task: LoadedTask,
    model: PreTrainedModel,
    tokenizer: Any,
    harness_model: Callable[[int | None], Any],
    differentiate: Differentiate | None,
) -> Measure:
    match task:
        case PerplexityText() | HarnessTask() if tokenizer is None:
            raise EvaluationError(
                "only language models, which have a tokenizer, have this measured; "
                "measure this model with a task of the kind 'python'"
            )
        case PerplexityText():
            return prepare_perplexity(task, model, tokenizer, differentiate)
        case HarnessTask():
            return prepare_harness(task, harness_model)
        case PythonFunction():
            return prepare_function(task, model, tokenizer)


def _measure(
    name: str, model: PreTrainedModel, metric: Metric, measure: Measure
) -> Measurement:
    return _locate(name, model, lambda: _check_range(measure(), metric))


def _check_range(measurement: Measurement, metric: Metric) -> Measurement:
    """Refuse a value that cannot be; NaN and infinity are for the caller to judge."""
    value = measurement.value
    below = metric.lower is not None and value < metric.lower
    above = metric.upper is not None and value > metric.upper
    if math.isfinite(value) and (below or above):
        raise EvaluationError(
            f"values must lie in [{metric.lower}, {metric.upper}], got {value}; state "
            "the range of the metric with 'range:'"
        )
    return measurement


def _locate(name: str, model: PreTrainedModel, step: Callable[[], T]) -> T:
    """Run a step and say of which task and model its failure is."""
    place = f"task {name!r} on model {model.name_or_path or type(model).__name__!r}"
    try:
        return step()
    except EvaluationError as error:
        raise EvaluationError(f"{place}: {error}") from error
    except Exception as error:
        out_of_memory = isinstance(error, torch.OutOfMemoryError)
        hint = _OUT_OF_MEMORY if out_of_memory else ""
        raise EvaluationError(
            f"{place}: could not be measured: {type(error).__name__}: {error}{hint}"
        ) from error
