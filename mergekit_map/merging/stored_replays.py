"""Replays as JSON beside their tensors, so that another process can merge with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from mergekit import merge_methods
from mergekit.common import ModelReference
from mergekit.merge_methods.base import (
    MergeMethod,
    PerInputValues,
    TensorEntry,
    TensorGroup,
    TensorMetadata,
)
from torch import Tensor

from mergekit_map.errors import MergeError
from mergekit_map.merging.low_rank import Factors, LowRankReplay
from mergekit_map.merging.replay import MethodReplay, Replay, TaskVectorReplay

# What a replay may be made of, and be: dataclasses, written field by field.
_PARTS = {
    part.__name__: part
    for part in (
        TaskVectorReplay,
        LowRankReplay,
        Factors,
        MethodReplay,
        TensorGroup,
        TensorEntry,
        TensorMetadata,
    )
}


def layout() -> dict[str, list[str]]:
    """Say which fields are stored, so that a change of them is noticed."""
    return {
        name: [field.name for field in dataclasses.fields(part)]
        for name, part in _PARTS.items()
    }


def stored(replay: Replay, put: Callable[[str, Tensor], None], name: str) -> Any:
    """Write a replay as JSON; ``put`` takes its tensors, under names of their own.

    Raises:
        MergeError: it holds something that JSON does not.
    """
    count = 0

    def write(value: Any) -> Any:
        nonlocal count
        if isinstance(value, Tensor):
            count += 1
            put(f"{name}/{count}", value)
            return {"tensor": f"{name}/{count}"}
        if isinstance(value, list):
            return [write(item) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [write(item) for item in value]}
        if isinstance(value, PerInputValues):
            pairs = [[write(model), write(one)] for model, one in value.items()]
            return {"per_input": pairs}
        if isinstance(value, Mapping):
            return {"items": [[write(key), write(one)] for key, one in value.items()]}
        if type(value).__name__ in _PARTS:
            fields = dataclasses.fields(value)
            content = {f.name: write(getattr(value, f.name)) for f in fields}
            return {"is": type(value).__name__, "fields": content}
        return _plain(value, name)

    return write(replay)


def with_tensors(replay: Replay, change: Callable[[Tensor], Tensor]) -> Replay:
    """Give the same replay of other tensors, the same ones elsewhere for example.

    One that no file can hold stays as it is.
    """
    tensors: dict[str, Tensor] = {}
    try:
        content = stored(replay, tensors.__setitem__, "")
    except MergeError:
        return replay
    changed: Replay = restored(content, lambda name: change(tensors[name]))
    return changed


def tensor_bytes(replay: Replay) -> int:
    """Count the bytes of the tensors of a replay, as far as they are known."""
    sizes: list[int] = []
    with suppress(MergeError):
        stored(replay, lambda _, t: sizes.append(t.numel() * t.element_size()), "")
    return sum(sizes)


def _plain(value: Any, name: str) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, ModelReference):
        return {"model": str(value)}
    if isinstance(value, MergeMethod):
        return {"method": value.spec.name}
    raise MergeError(
        f"{name} is merged with a {type(value).__name__}, which no file holds"
    )


def restored(content: Any, get: Callable[[str], Tensor]) -> Any:
    """Read what ``stored`` wrote; ``get`` gives the tensors."""
    if isinstance(content, list):
        return [restored(item, get) for item in content]
    if not isinstance(content, dict):
        return content
    match content:
        case {"tensor": name}:
            return get(name)
        case {"tuple": items}:
            return tuple(restored(item, get) for item in items)
        case {"per_input": pairs}:
            return PerInputValues([tuple(restored(pair, get)) for pair in pairs])
        case {"items": pairs}:
            return dict(restored(pair, get) for pair in pairs)
        case {"is": name, "fields": fields}:
            found = {key: restored(one, get) for key, one in fields.items()}
            return _PARTS[name](**found)
        case {"dtype": name}:
            return getattr(torch, name)
        case {"model": reference}:
            return ModelReference.model_validate(reference)
        case {"method": name}:
            return merge_methods.get(name)
    raise ValueError(f"a replay holds no {sorted(content)}")
