"""A task of the user's own: a Python function of the merged model.

The function runs in this process, on the model that all tasks measure. A checksum
before and after each call shows whether it changed the weights.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib
import inspect
import reprlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from mergekit_map.config.tasks import PythonTask
from mergekit_map.errors import EvaluationError, InvalidTask, in_words, nearest
from mergekit_map.surrogates.arrays import finite
from mergekit_map.tasks.base import (
    PreparedTask,
    fingerprint,
    modules_beside,
    ratio_standard_error,
    separate_randomness,
)
from mergekit_map.types import Answers, Measurement, Metric
from mergekit_map.utils.text import printable

_KEY = ("python",)
_WORDS = 64  # of 8 bytes, in a row of the checksum's table


@dataclass(frozen=True)
class PythonFunction:
    """A function of the model and its tokenizer that returns the value."""

    name: str
    function: Callable[..., Any]
    metric: Metric
    fingerprint: str  # of its file, and of what that imports from its own folder
    partial: bool  # whether it is told which documents to measure


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
        partial = _takes_documents(inspect.signature(function))
    except (TypeError, ValueError) as error:
        raise InvalidTask(
            _KEY,
            f"{spec.python} is called with (model, tokenizer), which it does not "
            f"accept: {error}; give it these two parameters",
        ) from None
    lower, upper = spec.range or (None, None)
    metric = Metric(spec.direction == "maximize", lower, upper)
    return PythonFunction(name, function, metric, definition(spec, function), partial)


def definition(spec: PythonTask, function: Callable[..., Any]) -> str:
    """Return the digest of a task with its present files."""
    beside = modules_beside(importlib.import_module(spec.python.partition(":")[0]))
    texts = {name: beside[name].read_bytes() for name in sorted(beside)}
    parts = ("python", 1, spec.python, spec.direction, function)
    return fingerprint(*parts, texts) if texts else fingerprint(*parts)


def prepare_function(
    task: PythonFunction, model: PreTrainedModel, tokenizer: Any
) -> PreparedTask:
    """Bind the function to the model, and to a tokenizer that it may change."""
    run = functools.partial(_measure, task, model, copy.deepcopy(tokenizer))
    return PreparedTask(run, None)


def _takes_documents(signature: inspect.Signature) -> bool:
    """Whether the function takes documents; raise TypeError if it cannot be called."""
    if "documents" in signature.parameters:
        signature.bind(None, None, documents=None)
        return True
    signature.bind(None, None)
    return False


def _import(module_name: str, directory: Path) -> ModuleType:
    entry = str(directory.resolve())
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        # Files may have been edited, or another folder have some of that name.
        if (module := sys.modules.pop(module_name, None)) is not None:
            for name in modules_beside(module):
                sys.modules.pop(name, None)
        return importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit, too: the search is not what ends
        raise InvalidTask(
            _KEY,
            f"module {module_name!r} cannot be imported: {in_words(error)}; it is "
            "looked for in the working directory and among the installed packages",
        ) from error
    finally:
        if entry in sys.path:
            sys.path.remove(entry)
        if entry not in sys.path:  # last: a function may import more when it runs
            sys.path.append(entry)


def _measure(
    task: PythonFunction,
    model: PreTrainedModel,
    tokenizer: Any,
    documents: Sequence[int] | None,
) -> Measurement:
    before = weight_checksum(model)
    # Not inference_mode: a function that needs gradients can enable them.
    with separate_randomness(), torch.no_grad():
        try:
            if task.partial:
                some = None if documents is None else list(documents)
                returned = task.function(model, tokenizer, documents=some)
            else:
                returned = task.function(model, tokenizer)
        finally:
            model.train(mode=False)
    if weight_checksum(model) != before:
        raise EvaluationError(
            "the function changed the weights of the model, so its value is not that "
            "of the merge; change a copy in it (copy.deepcopy(model))"
        )
    values = _as_list(returned)
    if documents is not None and (values is None or len(values) != len(documents)):
        got = printable(reprlib.repr(returned)) if values is None else f"{len(values)}"
        raise EvaluationError(
            "the function must return a list with a number for each of the "
            f"{len(documents)} documents it was asked for, got {got}; measure those of "
            "'documents', all where it is None"
        )
    if values is None:
        return _one_value(returned)
    return _mean(values, range(len(values)) if documents is None else documents)


def weight_checksum(model: torch.nn.Module) -> str:
    """Compute a checksum of the bits, dtypes, shapes and devices of all tensors.

    For each tensor it digests the sums of its rows and columns of 8-byte words, which
    takes as long as reading it once. Any change of one number and any exchange of two
    changes a sum.
    """
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tensor.shape} {tensor.device}".encode())
        if not tensor.is_meta:
            table = _as_words(tensor)
            for sums in (table.sum(dim=0), table.sum(dim=1)):
                digest.update(sums.cpu().numpy().tobytes())
    return digest.hexdigest()


def _as_words(tensor: Tensor) -> Tensor:
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    row = 8 * _WORDS
    if missing := -flat.numel() % row:
        flat = torch.nn.functional.pad(flat, (0, missing))
    elif flat.storage_offset() % 8:
        flat = flat.clone()
    return flat.view(torch.int64).view(-1, _WORDS)


def _as_list(returned: Any) -> list[float] | None:
    """Return one number for each document; None for another form."""
    if isinstance(returned, np.ndarray | torch.Tensor) and returned.ndim == 1:
        returned = returned.tolist()
    if not isinstance(returned, list):
        return None
    if not returned or not all(isinstance(value, Real) for value in returned):
        raise _unusable(returned)
    return [float(value) for value in returned]


def _mean(values: Sequence[float], ids: Sequence[int]) -> Measurement:
    weights = (1.0,) * len(values)
    return Measurement(
        value=sum(values) / len(values),
        stderr=finite(ratio_standard_error(values, weights)),
        n=len(values),
        samples=tuple(
            {"document": i, "value": value}
            for i, value in zip(ids, values, strict=True)
        ),
        answers=Answers(tuple(ids), tuple(values), weights),
    )


def _one_value(returned: Any) -> Measurement:
    pair = returned if isinstance(returned, tuple) else (returned, None)
    if len(pair) != 2 or not _is_number(pair[0]):
        raise _unusable(returned)
    value, stderr = pair
    if stderr is not None and (not _is_number(stderr) or stderr < 0):
        raise _unusable(returned)
    # One that is no finite number says nothing; the value may still be good.
    known = finite(None if stderr is None else float(stderr))
    return Measurement(float(value), known, n=1)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _unusable(returned: Any) -> EvaluationError:
    shown = printable(reprlib.repr(returned))  # of any type and length
    return EvaluationError(
        "the function must return a number, a number and its standard error of 0 or "
        "more, or a list with a number for each document, got "
        f"{shown} ({type(returned).__name__}); for a tensor return "
        "tensor.item(), or tensor.tolist()"
    )
