"""Where task vectors lie: on the device, in host memory, or mapped from their files.

They are merged on the device of the model in any case, so that the place decides time
and memory and never a bit of a merge. On a CPU mapped is as fast as memory, once pages
are read; for a GPU what lies elsewhere is copied there tensor by tensor, for each
merge.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from mergekit_map.merging.devices import FOR_ACTIVATIONS
from mergekit_map.merging.replay import Replay
from mergekit_map.merging.stored_replays import with_tensors
from mergekit_map.words import bytes_in_words

Place: TypeAlias = Literal["device", "memory", "mapped"]

# Pinned memory is handed out in powers of two.
_PINNED = 2


@dataclass(frozen=True)
class Storage:
    """Where task vectors and base lie, and why, in words."""

    place: Place
    why: str


def choose_storage(
    asked: Literal["auto"] | Place,
    device: torch.device,
    n_bytes: int,
    besides: int = 0,
    *,
    no_file: str = "",
) -> Storage:
    """Choose where ``n_bytes`` go: where they are merged fastest of where they fit.

    Args:
        asked: What the configuration says.
        device: Of the model under evaluation.
        n_bytes: Of base and task vectors.
        besides: Bytes that the device will hold, too.
        no_file: Why there is no file to map, if there is none.
    """
    if device.type == "cpu":
        if asked == "auto":
            return _mapped_or_memory(no_file)
        asked = "memory" if asked == "device" else asked
    if asked == "mapped" and no_file:
        return Storage("memory", f"not mapped as asked: {no_file}")
    if asked != "auto":
        return Storage(asked, "as asked")
    free = free_memory(device)
    if free is None or n_bytes + besides <= (1 - FOR_ACTIVATIONS) * free:
        return Storage("device", f"they fit on {device}")
    why = f"{device} has {bytes_in_words(free)} free"
    host = free_memory(torch.device("cpu"))
    if no_file or host is None or _PINNED * n_bytes <= host:
        return Storage("memory", why)
    return Storage("mapped", f"{why}, the host {bytes_in_words(host)}")


def _mapped_or_memory(no_file: str) -> Storage:
    if no_file:
        return Storage("memory", no_file)
    return Storage("mapped", "as fast as memory on a CPU, and shared by processes")


def placed(
    replays: Mapping[str, Replay], place: Place, targets: Mapping[str, Tensor]
) -> dict[str, Replay]:
    """Move the tensors of replays; those on the device go where their targets are."""

    def move(device: torch.device, tensor: Tensor) -> Tensor:
        if place == "device":
            return tensor.to(device, copy=device.type == "cpu")
        tensor = tensor.cpu()
        return tensor.pin_memory() if device.type == "cuda" else tensor.clone()

    return {
        name: with_tensors(replay, partial(move, targets[name].device))
        for name, replay in replays.items()
    }


def on_device(replay: Replay, target: Tensor) -> Replay:
    """Bring what a replay merges to where it is merged."""
    if target.device.type == "cpu":
        return replay
    return with_tensors(replay, lambda t: t.to(target.device, non_blocking=True))


def free_memory(device: torch.device) -> int | None:
    """Give the bytes that are free on a device; None where that is not known."""
    if device.type == "cuda" and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    meminfo = Path("/proc/meminfo")
    for line in meminfo.read_text().splitlines() if meminfo.exists() else ():
        if line.startswith("MemAvailable:"):  # with what merely keeps files at hand
            return int(line.split()[1]) * 1024
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
