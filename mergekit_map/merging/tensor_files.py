"""Files of safetensors, written one tensor at a time and mapped into memory.

Replays are stored as JSON beside their tensors, so that another process can use them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
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
from safetensors import safe_open
from torch import Tensor

from mergekit_map.errors import ArtifactError, MergeError
from mergekit_map.merging.low_rank import Factors, LowRankReplay
from mergekit_map.merging.replay import MethodReplay, Replay, TaskVectorReplay
from mergekit_map.utils.files import sha256

# Bytes that are gathered before they are written.
_SHARD_BYTES = 1 << 26

# Where a tensor begins: at a line of a CPU's cache, which a vector then does not cross.
_ALIGNMENT = 64

_LENGTH = 8  # bytes that hold the length of the header
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class ShardWriter:
    """Writes tensors to a folder; holds at most a shard and the last tensor."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._waiting: dict[str, Tensor] = {}
        self.files: list[str] = []

    def add(self, name: str, tensor: Tensor) -> None:
        """Add a tensor, which must not change until it is written.

        Raises:
            ArtifactError: the format has no name for its type.
            OSError: the disk is full, for example.
        """
        if tensor.dtype not in _NAMES:
            raise ArtifactError(f"safetensors cannot hold {tensor.dtype} ({name})")
        self._waiting[name] = tensor.detach().contiguous().cpu()
        if sum(map(_n_bytes, self._waiting.values())) >= _SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the tensors that are not written yet."""
        if not self._waiting:
            return
        name = f"tensors-{len(self.files) + 1:05d}.safetensors"
        _write(self._folder / name, self._waiting)
        self.files.append(name)
        self._waiting = {}


def _n_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of safetensors whose tensors begin at multiples of 64 bytes."""
    # The format allows no gaps: those with odd sizes go last.
    ordered = sorted(tensors, key=lambda name: _n_bytes(tensors[name]) % _ALIGNMENT)
    header, end = {}, 0
    for name in ordered:
        tensor = tensors[name]
        start, end = end, end + _n_bytes(tensor)
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-(_LENGTH + len(text)) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH, "little") + text)
        for name in ordered:
            if tensors[name].numel():
                file.write(tensors[name].reshape(-1).view(torch.uint8).numpy().data)


def sync(folder: Path) -> None:
    """Wait until all files below a folder are on the disk."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("r+b") as file:
                os.fsync(file.fileno())


def described(folder: Path) -> dict[str, list[Any]]:
    """Return the size of every file below a folder, and a digest of its beginning.

    Of safetensors the digest covers the header; of other files, everything.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = _described(path)
    return found


def _described(path: Path) -> list[Any]:
    with path.open("rb") as file:
        if path.suffix == ".safetensors":
            length = file.read(_LENGTH)
            start = length + file.read(int.from_bytes(length, "little"))
        else:
            start = file.read()
        return [path.stat().st_size, sha256(start)]


class MappedTensors:
    """Tensors of files of safetensors by name; their pages are those of the files."""

    def __init__(self, folder: Path, files: list[str]) -> None:
        self._places: dict[str, Any] = {}
        for name in files:
            file: Any = safe_open(folder / name, "pt")
            self._places |= dict.fromkeys(file.keys(), file)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._places[name].get_tensor(name)
        return tensor


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
    """Return the fields of stored replays; a change of them invalidates recordings."""
    return {
        name: [field.name for field in dataclasses.fields(part)]
        for name, part in _PARTS.items()
    }


def stored(replay: Replay, put: Callable[[str, Tensor], None], name: str) -> Any:
    """Return a replay as JSON; ``put`` takes its tensors, under names of their own.

    Raises:
        MergeError: it holds a value that JSON does not have.
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
    """Return a replay with changed tensors, moved to another device for example.

    A replay that cannot be stored in a file is returned as it is.
    """
    tensors: dict[str, Tensor] = {}
    try:
        content = stored(replay, tensors.__setitem__, "")
    except MergeError:
        return replay
    changed: Replay = restored(content, lambda name: change(tensors[name]))
    return changed


def tensor_bytes(replay: Replay) -> int:
    """Return the size of a replay's tensors, as far as it is known."""
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
    """Restore a replay from the result of ``stored``; ``get`` returns the tensors."""
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
