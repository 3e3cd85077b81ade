"""A task of the user's own: a Python function of the merged model.

The function runs in this process, on the model that all tasks measure. A checksum
before and after each call shows whether it changed the weights.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.util
import inspect
import os
import reprlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from mergekit_map.config.tasks import PythonTask
from mergekit_map.errors import EvaluationError, InvalidTask, MergeError, in_words
from mergekit_map.tasks.base import (
    PreparedTask,
    fingerprint,
    modules_beside,
    ratio_stderr,
    separate_randomness,
    source_hash,
)
from mergekit_map.types import Answers, Documents, Measurement, Metric
from mergekit_map.utils.files import plain, sha256_of_file
from mergekit_map.utils.text import nearest, printable

_KEY = ("python",)
_WORDS = 1009  # in a row of the table; a prime, so that no tensor's rows are its rows


@dataclass(frozen=True)
class PythonFunction:
    """A function of the model and its tokenizer that returns the value."""

    name: str
    function: Callable[..., Any]
    metric: Metric
    fingerprint: str  # of its file, and of what that imports from its own folder
    partial: bool  # whether it is told which documents to measure
    source: tuple[str, PythonTask, Path]  # its name, settings and folder

    def __reduce__(self) -> tuple[Callable[..., PythonFunction], tuple[Any, ...]]:
        # A worker imports it again: here another task may have, with its module.
        again = functools.partial(load_function, fresh=False)
        return again, (*self.source, self.fingerprint)

    def prepare(self, model: PreTrainedModel, tokenizer: Any) -> PreparedTask:
        """Bind the function to the model, and to a tokenizer that it may change."""
        run = functools.partial(_measure, self, model, copy.deepcopy(tokenizer))
        return PreparedTask(run, None)


def load_function(
    name: str,
    spec: PythonTask,
    directory: Path,
    known: str | None = None,
    *,
    fresh: bool = True,
) -> PythonFunction:
    """Import the function, looking into ``directory`` first, or raise InvalidTask.

    MergeError if its fingerprint is not ``known``. If ``fresh``, its module is imported
    again: files may have been edited since, or be those of another folder.
    """
    module_name, _, function_name = spec.python.partition(":")
    module = _import(module_name, directory, fresh=fresh)
    function = vars(module).get(function_name)
    if not callable(function):
        routines = [key for key, one in vars(module).items() if inspect.isroutine(one)]
        text = f"module {module_name!r} has no function {function_name!r}; "
        raise InvalidTask(_KEY, text + nearest(function_name, routines))
    try:
        signature = inspect.signature(function)
        partial = "documents" in signature.parameters
        signature.bind("model", "tokenizer", **({"documents": None} if partial else {}))
    except (TypeError, ValueError) as error:
        raise InvalidTask(
            _KEY,
            f"{spec.python} is called with (model, tokenizer), which it does not "
            f"accept: {error}; give it these two parameters",
        ) from None
    metric = Metric(spec.direction == "maximize", *(spec.range or (None, None)))
    identity = ["python", 1, spec.python, spec.direction, function]
    file = Path(str(module.__file__))
    # A decorator or a factory may be of another file than what it decorates or makes.
    if file.is_file() and source_hash(function) != sha256_of_file(file):
        identity.append(file.read_bytes())
    if beside := modules_beside(module):
        identity.append({name: path.read_bytes() for name, path in beside.items()})
    digest = fingerprint(*identity)
    if known not in {None, digest}:
        raise MergeError(f"the code of task {name!r} changed; start again")
    source = (name, spec, directory)
    return PythonFunction(name, function, metric, digest, partial, source)


def _import(module_name: str, directory: Path, *, fresh: bool) -> ModuleType:
    if module_name == "__main__":
        raise InvalidTask(_KEY, "__main__ is no file; write the function into one")
    entry = str(directory.resolve())
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        loaded = getattr(sys.modules.get(module_name), "__file__", None) or ""
        is_own = Path(entry, *module_name.split(".")).with_suffix(".py").is_file()
        if again := fresh or (is_own and not loaded.startswith(entry + os.sep)):
            sys.modules.pop(module_name, None)
        if again and (spec := importlib.util.find_spec(module_name)):
            for name in modules_beside(importlib.util.module_from_spec(spec)):
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
    task: PythonFunction, model: PreTrainedModel, tokenizer: Any, documents: Documents
) -> Measurement:
    before, here = weight_checksum(model), os.getcwd()
    generation: Any = copy.deepcopy(getattr(model, "generation_config", None))
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
            model.generation_config = generation
            os.chdir(here)  # the run folder's path may be relative
    if weight_checksum(model) != before:
        raise EvaluationError(
            "the function changed the weights of the model, so its value is not that "
            "of the merge; change a copy in it (copy.deepcopy(model))"
        )
    try:
        return _read(returned, documents)
    except (TypeError, ValueError) as error:
        raise EvaluationError(
            "the function must return a number, a number and its standard error of 0 "
            "or more, or a list with a number for each document, got "
            f"{printable(reprlib.repr(returned))} ({error})"
        ) from None


def weight_checksum(model: torch.nn.Module) -> str:
    """Compute a checksum of the dtypes, shapes, devices and bits of all tensors.

    For each tensor it takes the sums of the rows and columns of a table of its 8-byte
    words, in about the time of reading it once. A change of one number, and an exchange
    of two, changes a sum.
    """
    # Buffers that are not stored, as of rotary embeddings, have a dtype, too.
    digest = hashlib.sha256(repr([b.dtype for b in model.buffers()]).encode())
    for name, tensor in model.state_dict().items():
        if tensor.is_meta:  # offloaded
            continue
        data = tensor.flatten().view(torch.uint8)
        missing = -len(data) % (8 * _WORDS)  # bytes of the last row
        padded = torch.nn.functional.pad(data, (0, missing))
        table = padded.view(torch.int64).view(-1, _WORDS)
        digest.update(f"{(name, tensor.dtype, tensor.shape, tensor.device)}".encode())
        for sums in (table.sum(dim=0), table.sum(dim=1)):
            digest.update(sums.cpu().numpy().tobytes())
    return digest.hexdigest()


def _read(returned: Any, documents: Documents) -> Measurement:
    """Read what a function returned; raise TypeError or ValueError for other forms."""
    if isinstance(returned, np.ndarray | torch.Tensor):
        returned = returned.tolist()
    if isinstance(returned, list):
        return _mean([float(value) for value in returned], documents)
    if documents is not None:
        raise ValueError(f"no list, for {len(documents)} documents")
    value, error = returned if isinstance(returned, tuple) else (returned, None)
    # A standard error that is not finite is unknown; the value may still be good.
    stderr = plain(None if error is None else float(error))
    if stderr is not None and stderr < 0:
        raise ValueError("a negative standard error")
    return Measurement(float(value), stderr, n=1)


def _mean(values: Sequence[float], documents: Documents) -> Measurement:
    ids = range(len(values)) if documents is None else documents
    if len(values) != len(ids) or not values:
        raise ValueError(f"{len(values)} numbers for {len(ids)} documents")
    weights = (1.0,) * len(values)
    return Measurement(
        value=sum(values) / len(values),
        stderr=plain(ratio_stderr(values, weights)),
        n=len(values),
        samples=tuple(
            {"document": i, "value": v} for i, v in zip(ids, values, strict=True)
        ),
        answers=Answers(tuple(ids), tuple(values), weights),
    )
