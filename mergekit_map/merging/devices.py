"""The device of a search, and the memory and disk space that it needs.

The device is the requested one, or an available CUDA or XPU GPU. Options without a
device (``None``) leave the choice open; mergekit's own never do.

Sizes are counted from headers. Task vectors lie on the device, in host memory, or
mapped from their files. They are always merged on the device of the model, so that
their place affects time and memory and never a bit of a merge. On a CPU, mapped files
are as fast as memory once their pages are read; for a GPU, tensors elsewhere are copied
there one by one, for each merge. An engine gets the share of a GPU that is left.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import psutil
import torch
from mergekit.common import dtype_from_name
from mergekit.options import MergeOptions

from mergekit_map.config.schema import MapBlock
from mergekit_map.errors import ConfigError, MergeError
from mergekit_map.merging.space import MergeSpace
from mergekit_map.models.compatibility import InspectedModel
from mergekit_map.models.files import TensorHeader, find_model
from mergekit_map.models.references import (
    Reference,
    models_with_adapter,
    referenced_models,
)
from mergekit_map.utils.recordings_cache import free_bytes, recordings_folder
from mergekit_map.utils.text import bytes_in_words

Place: TypeAlias = Literal["device", "memory", "mapped"]

_FOR_ACTIVATIONS = 0.1  # of a device's memory, left to activations
_PINNED = 2  # pinned memory is handed out in powers of two
_HOST = torch.device("cpu")


def left_open(options: MergeOptions) -> MergeOptions:
    """Leave the choice of the device open."""
    return options.model_copy(update={"device": None})


def decided(options: MergeOptions, before: str | None = None) -> MergeOptions:
    """Return options with a device, chosen if it was open.

    The device of earlier measurements, ``before``, is chosen if it is available, so
    that a search can continue; otherwise mergekit's ``auto``, which does not know MPS.
    """
    if options.device is not None:
        return options
    if before is None or not is_there(before):
        before = best_device()
    return options.model_copy(update={"device": before})


def best_device() -> str:
    """Return the default device, for a search without a request or measurements."""
    return str(MergeOptions(device="auto").device)


def is_there(device: str) -> bool:
    """Return whether torch can compute on a device of this machine."""
    try:
        torch.zeros(1, device=device).item()  # ``meta`` has shapes and no values
    except (RuntimeError, AssertionError) as error:  # the latter where built without
        return "out of memory" in str(error)  # it is full, and says so when it is used
    return True


def check_device(options: MergeOptions) -> None:
    """Raise ConfigError for a device that torch cannot use here."""
    device = str(options.device)
    if not is_there(device):
        raise ConfigError(
            f"--device {device} asks for a device that torch {torch.__version__} "
            "cannot use here; leave the option out for the one that is there, or write "
            "--device cpu"
        )


def needs_all_gpus(n_bytes: int, device: str) -> bool:
    """Whether so much fits on no single GPU, where no certain one was requested."""
    if device != "cuda" or torch.cuda.device_count() < 2:
        return False
    return n_bytes > (1 - _FOR_ACTIVATIONS) * (free_memory(torch.device(device)) or 0)


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that are free on a device; None where that is not known."""
    if device.type == "cuda" and torch.cuda.is_available():
        # With what torch reserves for new tensors.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return None if device.type != "cpu" else int(psutil.virtual_memory().available)


def _device_in_words(device: str) -> str:
    """Describe a device, a GPU with its memory: ``NVIDIA H200 (cuda, 150 GB)``."""
    if device == "cpu":
        return "the CPU"
    if torch.device(device).type != "cuda" or not is_there(device):
        return device
    found = torch.cuda.get_device_properties(device)
    return f"{found.name} ({device}, {bytes_in_words(found.total_memory)})"


def choice_in_words(options: MergeOptions, *, was_open: bool) -> str | None:
    """Describe the device in use and the alternative; None where there is none.

    ``was_open`` means that nobody requested a device.
    """
    device, best = str(options.device), best_device()
    if device == best == "cpu":
        return None
    used = f"merges are made and measured on {_device_in_words(device)}"
    if not was_open:
        return used
    if device == best:
        return f"{used}, since it is there; --device cpu forces the CPU"
    return f"{used}, as they were before; --device {best} measures anew"


def choose_place(
    asked: Literal["auto"] | Place, device: torch.device, n_bytes: int, besides: int = 0
) -> Place:
    """Return the fastest place for merging in which base and task vectors fit.

    They have ``n_bytes``. ``device`` is that of the evaluated model, and will hold as
    many bytes ``besides``.
    """
    if asked != "auto":
        return "memory" if asked == "device" and device.type == "cpu" else asked
    if device.type == "cpu":
        return "mapped"
    free = free_memory(device)
    if free is None or n_bytes + besides <= (1 - _FOR_ACTIVATIONS) * free:
        return "device"
    return "memory" if _PINNED * n_bytes <= (free_memory(_HOST) or 0) else "mapped"


@dataclass(frozen=True)
class Room:
    """Bytes that a search needs on a device or disk, and how many are free."""

    what: str  # its parts
    where: str  # the memory of a device, or a folder on a disk
    n_bytes: int
    free: int | None  # None where it is not known

    @property
    def falls_short(self) -> bool:
        """Whether more is needed than is free."""
        return self.free is not None and self.n_bytes > self.free

    def in_words(self) -> str:
        """Describe what is needed and what is free."""
        words = f"{bytes_in_words(self.n_bytes)} are needed in {self.where}"
        free = "" if self.free is None else f", {bytes_in_words(self.free)} are free"
        return f"{words} ({self.what}){free}"


def _room(where: str, free: int | None, parts: Mapping[str, int]) -> Room:
    uses = (f"{use} {bytes_in_words(n)}" for use, n in parts.items())
    return Room(", ".join(uses), where, sum(parts.values()), free)


class _Bytes(NamedTuple):
    held: int  # of base and task vectors, in the type that merges are computed in
    shipped: int  # of the merged model, in the type that it is written in


def _bytes(space: MergeSpace, models: Sequence[Mapping[str, TensorHeader]]) -> _Bytes:
    template, dtype = space.template, space.template.get("dtype")
    copies = len(referenced_models(template))
    out_dtype = template.get("out_dtype") or dtype
    return _Bytes(copies * _copy_bytes(models, dtype), _copy_bytes(models, out_dtype))


def _copy_bytes(models: Sequence[Mapping[str, TensorHeader]], name: str | None) -> int:
    dtype, total = dtype_from_name(name), 0
    for header in models[0].values():
        if header.is_float:
            kinds = {m[header.name].dtype for m in models if header.name in m}
            # Where types of 16 bits differ, mergekit takes float32.
            width = 4 if len(kinds) > 1 else header.torch_dtype.itemsize
            total += header.n_elements * (width if dtype is None else dtype.itemsize)
    return total


def room_of(
    space: MergeSpace,
    spec: MapBlock,
    options: MergeOptions,
    models: Sequence[InspectedModel],
    beside: MergeSpace | None = None,
) -> tuple[Room | None, Room | None, Place | None]:
    """Return memory of the device, disk of recordings, and the place of task vectors.

    Activations are not counted. ``beside`` is the linear merge of base, parents and
    soup, if that is measured before the search.
    """
    headers = [model.facts.headers for model in models if model.facts is not None]
    if not headers:
        return None, None, None
    sizes = _bytes(space, headers)
    recorded = [sum(_bytes(s, headers)) for s in (space, beside) if s]
    parts = {"base, task vectors and a merge": sum(recorded)}
    if adapters := models_with_adapter(space.template):
        merged = len(adapters) * _copy_bytes(headers, None)
        parts["models that adapters are merged into"] = merged
    disk = _room(str(recordings_folder()), free_bytes(), parts)
    on_disk = disk if spec.merge == "memory" else None
    return _memory(spec, options, sizes), on_disk, _place(spec, options, sizes)


def _place(spec: MapBlock, options: MergeOptions, sizes: _Bytes) -> Place | None:
    if spec.merge != "memory":
        return None
    device = torch.device(str(options.device))
    return choose_place(spec.task_vectors, device, sizes.held, sizes.shipped)


def _memory(spec: MapBlock, options: MergeOptions, sizes: _Bytes) -> Room:
    device = torch.device(str(options.device))
    parts = {"the model under evaluation": sizes.shipped}
    if _place(spec, options, sizes) == ("memory" if device == _HOST else "device"):
        parts["the models that are merged"] = sizes.held
    place, free = _device_in_words(str(device)), free_memory(device)
    if needs_all_gpus(sizes.shipped, str(device)):
        gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        place, free = "all GPUs", sum(free_memory(gpu) or 0 for gpu in gpus)
    where = f"the memory of {place}, beside activations and libraries"
    return _room(where, free, parts)


def check_room(space: MergeSpace, spec: MapBlock, options: MergeOptions) -> None:
    """Refuse, from headers, a search that does not fit on the requested device.

    The host's memory is not checked: how much of it is free is a guess.
    """
    check_device(options)
    gc.collect()  # models of earlier merges, which refer to themselves
    if torch.device(str(options.device)).type == "cpu":
        return
    room = _memory(spec, options, _bytes_by_headers(space))
    if room.falls_short:
        raise MergeError(
            f"{room.in_words()}; write --device cpu, set 'merge: disk' in the map "
            "block, which holds one model there, or make room"
        )


def recording_bytes(space: MergeSpace) -> int:
    """Estimate the size of a recording from headers."""
    return sum(_bytes_by_headers(space))


def _bytes_by_headers(space: MergeSpace) -> _Bytes:
    models = (Reference.parse(m).model for m in referenced_models(space.template))
    found = [find_model(str(m), weights=False).headers() for m in dict.fromkeys(models)]
    return _bytes(space, found)


_MOST = 0.9  # what vLLM takes when it is alone


def share_beside(total: int, free: int, wanted: int) -> float:
    """Return the share of a GPU that is left, rounded down to a hundredth.

    Of its ``total`` bytes, ``free`` are free now, and this process will need as many as
    ``wanted`` besides those it holds.
    """
    left = (free - wanted) / total - _FOR_ACTIVATIONS
    return max(0.0, min(_MOST, math.floor(100 * left) / 100))


def engine_share(
    space: MergeSpace, spec: MapBlock, options: MergeOptions, *, alone: bool
) -> float | None:
    """Return the share of the merges' GPU for an engine; None on a CPU.

    ``alone`` means that the model of this process measures no task.
    """
    device = torch.device(str(options.device))
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info(device)
    held = _memory(spec, options, _bytes_by_headers(space)).n_bytes
    here = torch.cuda.memory_reserved(device)
    return share_beside(total, free, 0 if alone else max(0, held - here))
