"""The interface of a task that measures one model, and what all kinds of tasks share.

Fingerprints are hashes of the definition of a task, equal between processes and
machines. Other libraries are kept from the terminal and from the global randomness.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import logging
import math
import random
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import ArrayLike
from tqdm import tqdm

from mergekit_map.types import Documents, Measure, Measurement
from mergekit_map.utils.files import sha256

_LEVELS = {
    "lm_eval": logging.ERROR,
    "transformers": logging.ERROR,
    "datasets": logging.CRITICAL,  # what it logs, it raises as well
}


@dataclass(frozen=True, eq=False)
class PreparedTask:
    """A task of one model; it measures all documents or some of them."""

    measure: Measure
    size: int | None  # how many documents; None where that is not known before

    def __call__(self, documents: Documents = None) -> Measurement:
        """Evaluate the model with the weights it has now."""
        return self.measure(documents)


def fingerprint(*parts: Any) -> str:
    """Hash plain values, containers, dataclasses, arrays and functions to sha256 hex.

    A function counts with the text of the file that defines it, so an edited helper
    beside it is noticed. Sets are sorted; memory addresses never enter.
    """
    text = json.dumps(plain(parts), ensure_ascii=False, sort_keys=True)
    return sha256(text.encode("utf-8", "surrogatepass"))


def modules_beside(module: ModuleType) -> dict[str, Path]:
    """Map the modules that a module imports from its own folder to their files.

    Directly or by one another, wherever in a file an import stands; of a package all.
    """
    if getattr(module, "__file__", None) is None:
        return {}
    name = module.__name__
    file = Path(str(module.__file__))
    folder = root = file.parent
    if str(folder) in sysconfig.get_paths().values():
        return {}  # what is installed is not the user's own
    if not Path(name).is_absolute():  # lm-eval names those of local tasks by paths
        root = file.parents[name.count(".") + (file.name == "__init__.py")]
    above = [folder, *folder.parents]
    packages = above[: above.index(root)]
    unread = [file, *(package / "__init__.py" for package in packages)]
    found = set[Path]()
    while unread:
        path = unread.pop()
        if path.is_file() and path not in found:
            found.add(path)
            for word in _imported_words(path):
                unread += [folder / f"{word}.py", *(folder / word).rglob("*.py")]
    parts = {p: p.relative_to(root).with_suffix("").parts for p in found - {file}}
    return {".".join(p for p in parts[f] if p != "__init__"): f for f in parts}


def _imported_words(file: Path) -> set[str]:
    try:
        nodes = [*ast.walk(ast.parse(file.read_bytes()))]
    except (SyntaxError, ValueError):
        return set()  # Python cannot import it either
    names = [node.name for node in nodes if isinstance(node, ast.alias)]
    names += [n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module]
    return {word for name in names for word in name.split(".")}


def plain(value: Any) -> Any:
    """Return a value as JSON has it; a function as its name and a hash of its file."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        # Before Mapping: lm-eval's TaskConfig is both, and empty as a dict.
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Set):
        return sorted(json.dumps(plain(item), sort_keys=True) for item in value)
    if isinstance(value, bytes):
        return sha256(value)
    if isinstance(value, functools.partial):
        return [plain(value.func), plain(value.args), plain(value.keywords)]
    if callable(value):
        # Not its module: lm-eval names those of local tasks by absolute path.
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return [str(name), source_hash(value), *_hashes_beside(value)]
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def source_hash(function: Any) -> str | None:
    """Return the hash of the file that defines a function; None if there is none."""
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
    except TypeError:  # built in, or an instance with __call__
        return None
    return sha256(file.read_bytes()) if file.is_file() else None


def _hashes_beside(function: Any) -> list[dict[str, str]]:
    """Hash what a function of a local lm-eval task imports from its own folder."""
    name = getattr(function, "__module__", None) or ""
    if name not in sys.modules or not Path(name).is_absolute():
        return []
    modules = modules_beside(sys.modules[name])
    hashes = {name: sha256(path.read_bytes()) for name, path in modules.items()}
    return [hashes] if hashes else []


def ratio_stderr(totals: ArrayLike, weights: ArrayLike) -> float | None:
    """Estimate the standard error of ``sum(totals) / sum(weights)``.

    The jackknife's (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
    chapter 11), with the items as independent draws; with equal weights it is the
    standard error of a mean. None with fewer than two items.
    """
    y = np.asarray(totals, dtype=np.float64)  # (n,)
    w = np.asarray(weights, dtype=np.float64)  # (n,)
    if (n := len(y)) < 2:
        return None
    with np.errstate(all="ignore"):  # infinite losses give NaN, as they should
        return math.sqrt(n - 1) * float(((y.sum() - y) / (w.sum() - w)).std())


@contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars, warnings and log lines below errors of other libraries."""
    create_bar = tqdm.__init__

    def create_hidden(bar: Any, *args: Any, **options: Any) -> None:
        create_bar(bar, *args, **{**options, "disable": True})

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(patch.object(tqdm, "__init__", create_hidden))
        for name, level in _LEVELS.items():
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        yield


@contextmanager
def separate_randomness() -> Iterator[None]:
    """Seed the global generators as lm-eval does inside, and restore them after.

    The seeds are those of the ``lm_eval`` command, so a task that draws from a global
    generator, by sampling from the model or in its own code, draws the same each time.
    """
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 - the state others draw from
    on_cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count()) if on_cuda else ()):
            random.seed(0)
            np.random.seed(1234)  # noqa: NPY002
            torch.manual_seed(1234)
            if "langdetect" in sys.modules:  # which seeds itself, by the system
                sys.modules["langdetect"].DetectorFactory.seed = 0
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
