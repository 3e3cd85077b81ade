"""A hash of what a task is, equal between processes and machines."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np

from mergekit_map.files import sha256


def fingerprint(*parts: Any) -> str:
    """Hash plain values, containers, dataclasses, arrays and functions to sha256 hex.

    A function counts with the text of the file that defines it, so an edited helper
    beside it is noticed. Sets are sorted; memory addresses never enter.
    """
    text = json.dumps(_plain(parts), ensure_ascii=False, sort_keys=True)
    return sha256(text.encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Before Mapping: lm-eval's TaskConfig is both, and empty as a dict.
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Set):
        return sorted(json.dumps(_plain(item), sort_keys=True) for item in value)
    if isinstance(value, bytes):
        return sha256(value)
    if isinstance(value, functools.partial):
        return [_plain(value.func), _plain(value.args), _plain(value.keywords)]
    if callable(value):
        # Not its module: lm-eval names those of local tasks by absolute path.
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return [str(name), _source_hash(value)]
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _source_hash(function: Any) -> str | None:
    try:
        file = inspect.getsourcefile(function)
    except TypeError:  # built in, or an instance with __call__
        return None
    if file is None or not Path(file).is_file():
        return None
    return sha256(Path(file).read_bytes())
