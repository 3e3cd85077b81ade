"""Loading of all tasks without a model, and their preparation for one in memory."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from transformers import PreTrainedModel

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import BackendSpec
from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, PythonTask, TaskSpec
from mergekit_map.errors import EvaluationError, InvalidTask, MergeError, in_words
from mergekit_map.results.records import LARGEST
from mergekit_map.tasks.base import PreparedTask, fingerprint
from mergekit_map.tasks.lm_eval_model import open_backend, prepare_harness, wrap_model
from mergekit_map.tasks.lm_eval_tasks import HarnessTask, load_harness
from mergekit_map.tasks.loglikelihood import BatchSize
from mergekit_map.tasks.perplexity import PerplexityText, load_text, prepare_text
from mergekit_map.tasks.python_function import PythonFunction, load_function
from mergekit_map.types import Documents, Measurement, Metric
from mergekit_map.utils.progress import warn

LoadedTask = PerplexityText | HarnessTask | PythonFunction
_FEW = 8  # documents; a standard error of so many is itself off by a quarter
Generations: TypeAlias = dict[str, list[str]]  # the answers of one model, by requests
_OUT_OF_MEMORY = "; lower batch_size, or the task's block"


def load_tasks(
    specs: Mapping[str, TaskSpec], directory: Path
) -> tuple[dict[str, LoadedTask], list[Problem]]:
    """Load tasks, list the mistakes of others; paths are relative to ``directory``."""
    loaded: dict[str, LoadedTask] = {}
    problems: list[Problem] = []
    modules = set[str]()  # of python tasks
    for name, spec in specs.items():
        try:
            match spec:
                case PerplexityTask():
                    loaded[name] = load_text(name, spec, directory)
                case LmEvalTask():
                    loaded[name] = load_harness(name, spec, directory)
                case PythonTask():
                    module = spec.python.partition(":")[0]
                    fresh = module not in modules
                    modules.add(module)
                    loaded[name] = load_function(name, spec, directory, fresh=fresh)
        except InvalidTask as error:
            problems.append(Problem(("map", "tasks", name, *error.key), str(error)))
    return loaded, problems


def prepare_tasks(
    tasks: Mapping[str, LoadedTask],
    model: PreTrainedModel,
    tokenizer: Any,
    *,
    batch_size: BatchSize = "auto",
    backend: BackendSpec | None = None,
    generations: Generations,
) -> dict[str, PreparedTask]:
    """Tokenise and build all requests once; each result measures the present model.

    The model is put into evaluation mode and otherwise left alone: overwrite its
    weights in place between measurements. Prepare again for another model. With a
    ``backend``, lm-eval tasks are measured by that, on the folder the model is from.
    Tasks that have the model generate the same share the ``generations``; clear them
    when its weights change. This and a measurement raise EvaluationError, with task and
    model, where a task cannot be measured.
    """
    model.train(mode=False)

    @functools.cache
    def harness_model() -> Any:
        if backend is None:
            lm: Any = wrap_model(model, tokenizer, batch_size)
        else:
            lm = open_backend(Path(str(model.name_or_path)), backend, batch_size)
        _share_generations(lm, generations)
        return lm

    def prepare(task: LoadedTask) -> PreparedTask:
        if tokenizer is None and not isinstance(task, PythonFunction):
            raise EvaluationError(
                "only language models, which have a tokenizer, have this measured; "
                "measure this model with a task of the kind 'python'"
            )
        match task:
            case PerplexityText():
                return prepare_text(task, model, tokenizer, batch_size)
            case HarnessTask():
                return prepare_harness(task, harness_model())
            case PythonFunction():
                return task.prepare(model, tokenizer)

    return {name: _prepared(task, model, prepare) for name, task in tasks.items()}


def prepare_generating(
    tasks: Mapping[str, LoadedTask], lm: Any, generations: Generations
) -> dict[str, PreparedTask]:
    """Prepare tasks as ``prepare_tasks``, for another model of lm-eval to generate."""
    _share_generations(lm, generations)
    prepare = functools.partial(prepare_harness, lm=lm)
    return {n: _prepared(task, lm.tokenizer, prepare) for n, task in tasks.items()}


def _share_generations(lm: Any, known: Generations) -> None:
    """Have a model generate the answers to the same requests once.

    All requests of a call are cached together, and none by itself: how they are
    batched moves an answer by its rounding, and a search that was stopped between two
    tasks must go on to the same numbers.
    """
    generate = lm.generate_until

    def answer(requests: Sequence[Any], *args: Any, **options: Any) -> list[str]:
        if (asked := fingerprint([request.args for request in requests])) not in known:
            known[asked] = generate(requests, *args, **options)
        return list(known[asked])

    lm.generate_until = answer


def _prepared(
    task: LoadedTask, model: Any, prepare: Callable[[Any], PreparedTask]
) -> PreparedTask:
    """Prepare a task; name it and the model in errors, and refuse impossible values.

    The caller judges NaN and infinity.
    """
    with _located(task.name, model):
        measure = prepare(task)
    if measure.size is not None and measure.size < _FEW:
        unit = "blocks of text" if isinstance(task, PerplexityText) else "documents"
        warn(
            f"standard errors of {task.name} are rough or unknown: it has fewer than "
            f"{_FEW} {unit} ({measure.size})"
        )

    def run(documents: Documents) -> Measurement:
        with _located(task.name, model):
            measurement = measure(documents)
            _check_value(task.metric, measurement)
        return measurement

    return PreparedTask(run, measure.size)


def _check_value(metric: Metric, measurement: Measurement) -> None:
    value, answers = measurement.value, measurement.answers
    numbers = [value, measurement.stderr or 0.0, *(answers.values if answers else ())]
    for number in numbers:  # whose squares must not overflow
        if math.isfinite(number) and abs(number) > LARGEST:
            raise EvaluationError(
                f"values and standard errors must not be above {LARGEST:g}, got "
                f"{number:g}: their squares would be no numbers; divide them"
            )
    lower, upper = metric.bounds
    rounding = 1e-6 * max(1.0, abs(value))  # a perfect bleu is 100.00000000000004
    if math.isfinite(value) and not lower - rounding <= value <= upper + rounding:
        raise EvaluationError(
            f"values must lie in [{metric.lower}, {metric.upper}], got {value}; "
            "state the range of the metric with 'range:'"
        )


@contextlib.contextmanager
def _located(name: str, model: Any) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit, too, is of the task and not of the search
        if isinstance(error, getattr(torch, "AcceleratorError", ())):
            raise MergeError(f"task {name!r}: {in_words(error)}") from error
        what = str(error)
        if not isinstance(error, EvaluationError):
            hint = _OUT_OF_MEMORY if isinstance(error, torch.OutOfMemoryError) else ""
            what = f"could not be measured: {in_words(error)}{hint}"
        # Transformers looks long for the name, which is wanted where something failed.
        place = f"task {name!r} on model {model.name_or_path or type(model).__name__!r}"
        raise EvaluationError(f"{place}: {what}") from error
