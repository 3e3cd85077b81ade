"""Replays in files, which are mapped into memory when they are read.

The files are torch's. Each tensor begins at a multiple of 64 bytes: a line of a CPU's
cache, which a vector then does not cross. Only the classes named here are restored.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from mergekit.common import ModelPath, ModelReference
from mergekit.merge_methods.base import (
    PerInputValues,
    TensorEntry,
    TensorGroup,
    TensorMetadata,
)
from torch import Tensor

from mergekit_map.merging.low_rank import Factors, LowRankReplay
from mergekit_map.merging.replay import MethodReplay, Replay, TaskVectorReplay

# Bytes that are gathered before they are written.
_SHARD_BYTES = 1 << 26

_CLASSES = [
    TaskVectorReplay,
    LowRankReplay,
    Factors,
    MethodReplay,
    TensorGroup,
    TensorEntry,
    TensorMetadata,
    PerInputValues,
    ModelReference,
    ModelPath,
]


class ReplayWriter:
    """Writes replays to a folder; holds at most a shard and the last replay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[str, Replay] = {}
        self._count = 0

    def add(self, name: str, replay: Replay) -> None:
        """Add the replay of a tensor.

        Raises:
            OSError, RuntimeError: the disk is full, for example.
        """
        # A view would bring along all that it is a part of.
        self._waiting[name] = replay.with_tensors(_copied)
        if sum(map(tensor_bytes, self._waiting.values())) >= _SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the replays that are not written yet."""
        self._count += 1
        torch.save(self._waiting, self._folder / f"replays-{self._count:05d}.pt")
        self._waiting = {}


def _copied(tensor: Tensor) -> Tensor:
    copy = tensor.detach().clone(memory_format=torch.contiguous_format)
    return copy.cpu()


def read_replays(folder: Path) -> dict[str, Replay]:
    """Read the replays of a folder; the pages of their tensors are those of files."""
    replays: dict[str, Replay] = {}
    with torch.serialization.safe_globals(_CLASSES):
        for path in sorted(folder.glob("replays-*.pt")):
            replays |= torch.load(path, mmap=True, weights_only=True)
    return replays


def tensor_bytes(replay: Replay) -> int:
    """Return the size of a replay's tensors."""
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor

    replay.with_tensors(note)
    return sum(sizes)


def sync(folder: Path) -> None:
    """Wait until all files below a folder are on the disk."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("r+b") as file:
                os.fsync(file.fileno())
