"""Tensors in files of safetensors, written as they come and mapped into memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from mergekit_map.errors import ArtifactError
from mergekit_map.files import sha256

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
    """Writes tensors to a folder, holding no more than a shard and the last one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._waiting: dict[str, Tensor] = {}
        self.files: list[str] = []

    def add(self, name: str, tensor: Tensor) -> None:
        """Take a tensor, which must not change until it is written.

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
        """Write what waits."""
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
    """Give the size of every file below a folder, and the digest of how it begins.

    Of safetensors that is the header; of other files, all.
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
