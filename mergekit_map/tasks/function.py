"""A measurement of one's own: a Python function of the merged model."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import PreTrainedModel

from mergekit_map.config.task_specs import PythonTask
from mergekit_map.errors import EvaluationError, InvalidTask, nearest
from mergekit_map.measurement import Measure, Measurement, Metric
from mergekit_map.tasks.fingerprint import fingerprint
from mergekit_map.tasks.surroundings import separate_randomness

_KEY = ("python",)


@dataclass(frozen=True)
class PythonFunction:
    """A function of the model and its tokenizer that returns the value."""

    name: str
    function: Callable[[PreTrainedModel, Any], Any]
    metric: Metric
    fingerprint: str  # of the whole file that defines the function


def load_function(name: str, spec: PythonTask, directory: Path) -> PythonFunction:
    """Import the function, looking into ``directory`` first.

    Raises:
        InvalidTask: it cannot be imported, or not called with model and tokenizer.
    """
    module_name, _, function_name = spec.python.partition(":")
    module = _import(module_name, directory)
    function = vars(module).get(function_name)
    if not callable(function):
        known = [key for key, value in vars(module).items() if inspect.isroutine(value)]
        raise InvalidTask(
            _KEY,
            f"module {module_name!r} has no function {function_name!r}; "
            + nearest(function_name, known),
        )
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError) as error:
        raise InvalidTask(
            _KEY,
            f"{spec.python} is called with (model, tokenizer), which it does not "
            f"accept: {error}; give it these two parameters",
        ) from None
    lower, upper = spec.range or (None, None)
    metric = Metric(spec.direction == "maximize", lower, upper)
    identity = fingerprint("python", 1, spec.python, spec.direction, function)
    return PythonFunction(name, function, metric, identity)


def prepare_function(
    task: PythonFunction, model: PreTrainedModel, tokenizer: Any
) -> Measure:
    """Bind the function to the model; its value counts as a mean of one item."""
    return functools.partial(_measure, task, model, tokenizer)


def _import(module_name: str, directory: Path) -> ModuleType:
    entry = str(directory.resolve())
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        module = sys.modules.get(module_name)
        if module is None:
            return importlib.import_module(module_name)
        # Its file may have been edited, or another folder have one of that name.
        return importlib.reload(module)
    except Exception as error:
        raise InvalidTask(
            _KEY,
            f"module {module_name!r} cannot be imported: {type(error).__name__}: "
            f"{error}; it is looked for in the working directory and among the "
            "installed packages",
        ) from error
    finally:
        sys.path.remove(entry)


def _measure(
    task: PythonFunction, model: PreTrainedModel, tokenizer: Any
) -> Measurement:
    with separate_randomness(), torch.no_grad():
        returned = task.function(model, tokenizer)
    pair = returned if isinstance(returned, tuple) else (returned, None)
    if len(pair) != 2 or not _is_number(pair[0]):
        raise _unusable(returned)
    value, stderr = pair
    if stderr is not None and (not _is_number(stderr) or stderr < 0):
        raise _unusable(returned)
    # A standard error of NaN says nothing; the value may still be good.
    known = stderr is not None and not math.isnan(stderr)
    return Measurement(float(value), float(stderr) if known else None, n=1)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _unusable(returned: Any) -> EvaluationError:
    return EvaluationError(
        "the function must return a number, or a number and its standard error of 0 or "
        f"more, got {returned!r} ({type(returned).__name__}); for a tensor return "
        "tensor.item()"
    )
