"""What a search holds in memory and on disk, counted from headers.

Where task vectors lie: on the device, in host memory, or mapped from their files.

They are merged on the device of the model in any case, so that the place decides time
and memory and never a bit of a merge. On a CPU mapped is as fast as memory, once pages
are read; for a GPU what lies elsewhere is copied there tensor by tensor, for each
merge.

How much of a GPU an engine may take beside the model of this process.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from huggingface_hub.constants import HF_HUB_CACHE
from mergekit.common import dtype_from_name
from mergekit.options import MergeOptions
from torch import Tensor

from mergekit_map.config.schema import MapBlock
from mergekit_map.errors import MergeError
from mergekit_map.merging.devices import (
    FOR_ACTIVATIONS,
    check_device,
    device_in_words,
    shared_out,
)
from mergekit_map.merging.low_rank_fit import count_in_low_rank
from mergekit_map.merging.methods import elects_signs
from mergekit_map.merging.multi_stage_merge import nests_checkpoints
from mergekit_map.merging.recordings_cache import lacking_room, recordings_folder
from mergekit_map.merging.replay import Replay
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.tensor_files import with_tensors
from mergekit_map.models.facts import ModelFacts, read_facts
from mergekit_map.models.files import find_model
from mergekit_map.models.preflight import InspectedModel
from mergekit_map.models.references import Reference, referenced_models
from mergekit_map.utils.files import cache_home
from mergekit_map.utils.text import bytes_in_words

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


# What is read, what is written for a while, and what is written to stay; and what is
# mapped, for which any memory is used that is free.
_Role: TypeAlias = Literal["source", "scratch", "result", "mapped"]

_HOST = torch.device("cpu")


@dataclass(frozen=True)
class Need:
    """Bytes that are wanted somewhere, and what is free there now."""

    what: str
    where: str  # a device, or a folder
    n_bytes: int
    free: int | None  # None where it is not known
    role: _Role = "result"


def needs(
    space: MergeSpace,
    spec: MapBlock,
    options: MergeOptions,
    models: Sequence[InspectedModel],
) -> tuple[list[Need], list[Need]]:
    """List what merging and measuring want of memory, activations aside, and of disks.

    What is written anew each time counts once.
    """
    facts = next((model.facts for model in models if model.facts is not None), None)
    if facts is None:
        return [], []
    memory = _memory_needs(space, spec, options, facts, len(models))
    size = _shipped_bytes(facts, space)
    copies = len(models) - count_in_low_rank(space.template, options)
    held = copies * _copy_bytes(facts, space.template.get("dtype"))
    disk = _disk_needs(space, spec, size, held + size)
    return memory, [*_sources(options, models), *disk]


def storage(
    space: MergeSpace,
    spec: MapBlock,
    options: MergeOptions,
    models: Sequence[InspectedModel],
) -> Storage | None:
    """Say where task vectors will lie; None where none are held."""
    facts = next((model.facts for model in models if model.facts is not None), None)
    if facts is None or spec.merge != "memory":
        return None
    return _storage(space, spec, options, facts, len(models))


def _storage(
    space: MergeSpace, spec: MapBlock, options: MergeOptions, facts: ModelFacts, n: int
) -> Storage:
    n -= count_in_low_rank(space.template, options)
    held = n * _copy_bytes(facts, space.template.get("dtype"))
    shipped = _shipped_bytes(facts, space)
    device = torch.device(str(options.device))
    no_file = lacking_room(held + shipped)
    return choose_storage(spec.task_vectors, device, held, shipped, no_file=no_file)


def _memory_needs(
    space: MergeSpace, spec: MapBlock, options: MergeOptions, facts: ModelFacts, n: int
) -> list[Need]:
    merged = _copy_bytes(facts, space.template.get("dtype"))
    shipped = _shipped_bytes(facts, space)
    device = torch.device(str(options.device))
    what, size = "the model under evaluation", shipped
    elsewhere: list[Need] = []
    if spec.merge == "memory":
        low = count_in_low_rank(space.template, options)
        held = f"{n - 1} task vector{'s' * (n > 2)}{_in_low_rank(low)}, the base model"
        if space.template.get("base_model") is None:
            held = f"{n} models"
        place = _storage(space, spec, options, facts, n).place
        if place == "device" or (place == "memory" and device == _HOST):
            what = f"{held} and the one under evaluation"
            size = (n - low) * merged + shipped
        else:
            role: _Role = "mapped" if place == "mapped" else "result"
            where = "mapped" if place == "mapped" else "cpu"
            free = free_memory(_HOST)
            elsewhere = [Need(held, where, (n - low) * merged, free, role)]
        if spec.search.gradients and elects_signs(space.template["merge_method"]):
            what, size = f"{what}, its gradient", size + merged
    if device.type != "cpu":
        elsewhere.append(Need("loading a merge", "cpu", shipped, free_memory(_HOST)))
    free = free_memory(device)
    if shares := shared_out(size, str(device)):
        what, free = f"{what}, on {len(shares)} GPUs", sum(shares.values())
    return [Need(what, str(device), size, free), *elsewhere]


def _in_low_rank(count: int) -> str:
    return f" ({count} in low rank)" if count else ""


def check_room(space: MergeSpace, spec: MapBlock, options: MergeOptions) -> None:
    """Refuse, from headers, what does not fit on the device that was asked for.

    The host's memory is another thing: what is free there is a guess.

    Raises:
        ConfigError: the device is not there.
        MergeError: what is held there is more than is free.
    """
    check_device(options)
    if torch.device(str(options.device)).type == "cpu":
        return
    facts, count = _facts_of_first(space, options)
    if facts is not None:
        refuse_shortages(_memory_needs(space, spec, options, facts, count))


def device_bytes(
    space: MergeSpace, spec: MapBlock, options: MergeOptions
) -> tuple[int, int]:
    """Count, from headers, what is held on the device, and what a merge takes alone."""
    facts, count = _facts_of_first(space, options)
    if facts is None:
        return 0, 0
    first, *_ = _memory_needs(space, spec, options, facts, count)
    return first.n_bytes, _shipped_bytes(facts, space)


def _facts_of_first(
    space: MergeSpace, options: MergeOptions
) -> tuple[ModelFacts | None, int]:
    references = list(referenced_models(space.template))
    front = str(Reference.parse(references[0]).model)
    facts, _ = read_facts(find_model(front), front, options)
    return facts, len(references)


def refuse_shortages(needs: Sequence[Need]) -> None:
    """Refuse needs of a device that it cannot meet.

    Raises:
        MergeError: with what is short.
    """
    for need in shortages([need for need in needs if need.where != "cpu"]):
        place, free = device_in_words(need.where), bytes_in_words(need.free or 0)
        raise MergeError(
            f"{need.what} need {bytes_in_words(need.n_bytes)} on {place}, and {free} "
            "are free there; write --device cpu, set 'merge: disk' in the map block, "
            "which holds one model there, or make room"
        )


def _disk_needs(
    space: MergeSpace, spec: MapBlock, size: int, recording: int
) -> Iterator[Need]:
    scratch = Path(tempfile.gettempdir())
    if spec.merge == "disk":
        yield _disk_need("each merge", scratch, size, "scratch")
    elif lacking_room(recording):
        yield _disk_need("a merge, at the start", scratch, size, "scratch")
    else:
        what = "the recorded merge, unless it is there"
        yield _disk_need(what, recordings_folder(), recording, "source")
    yield _disk_need("the checkpoint that is chosen", Path.cwd(), size)
    pairs = len(space.names) - 2
    if nests_checkpoints(space, spec.search) and pairs > 0:
        yield _disk_need(f"{pairs} merges on the way", Path.cwd(), pairs * size)


def _disk_need(what: str, folder: Path, n_bytes: int, role: _Role = "result") -> Need:
    free = shutil.disk_usage(_existing(folder.absolute())).free
    return Need(what, str(folder.absolute()), n_bytes, free, role)


def shortages(needs: Sequence[Need]) -> Iterator[Need]:
    """Add up what is wanted of a device or a disk at a time, where that is too much."""
    places: dict[str | int, list[Need]] = {}
    for need in needs:
        if need.role == "mapped":
            continue  # read from the disk where memory does not hold it
        places.setdefault(_place(need.where), []).append(need)
    for same in places.values():
        sizes = dict.fromkeys(("source", "scratch", "result"), 0)
        for need in same:
            sizes[need.role] += need.n_bytes
        # The scratch is gone when the result is written.
        total = sizes["source"] + max(sizes["scratch"], sizes["result"])
        free = same[0].free
        if free is not None and total > free:
            what = " and ".join(need.what for need in same)
            yield Need(what, same[0].where, total, free)


def _sources(options: MergeOptions, models: Sequence[InspectedModel]) -> Iterator[Need]:
    fetched = set()
    for model in models:
        if model.facts is None:
            continue
        size = sum(header.n_bytes for header in model.facts.headers.values())
        files = model.facts.files
        if files.fetched is not None and files.folder not in fetched:
            fetched.add(files.folder)
            cache = options.transformers_cache or HF_HUB_CACHE
            yield _disk_need(f"download of {model.name}", Path(cache), size, "source")
        if model.adapter is not None:
            merged = options.lora_merge_cache or cache_home() / "adapters"
            yield _disk_need(f"{model.name}, merged", Path(merged), size, "source")


def _shipped_bytes(facts: ModelFacts, space: MergeSpace) -> int:
    template = space.template
    return _copy_bytes(facts, template.get("out_dtype") or template.get("dtype"))


def _copy_bytes(facts: ModelFacts, name: str | None) -> int:
    headers = [header for header in facts.headers.values() if header.is_float]
    dtype = dtype_from_name(name)
    if dtype is None:
        return sum(header.n_bytes for header in headers)
    return sum(header.n_elements for header in headers) * int(dtype.itemsize)


def _existing(folder: Path) -> Path:
    return next(path for path in [folder, *folder.parents] if path.exists())


def _place(where: str) -> str | int:
    """Tell disks apart; folders on one disk share what is free."""
    folder = Path(where)
    return _existing(folder).stat().st_dev if folder.is_absolute() else where


_MOST = 0.9  # what vLLM takes when it is alone
_ACTIVATIONS = 0.1  # of the GPU, left to what this process computes


def share_beside(total: int, free: int, wanted: int) -> float:
    """Give the share of a GPU that is left, rounded down to a hundredth.

    Args:
        total: Bytes that the GPU has.
        free: Bytes that are free now.
        wanted: Bytes that this process will want besides those it holds.
    """
    left = (free - wanted) / total - _ACTIVATIONS
    return max(0.0, min(_MOST, math.floor(100 * left) / 100))


def engine_share(
    space: MergeSpace, spec: MapBlock, options: MergeOptions, *, alone: bool
) -> float | None:
    """Give the share for an engine on the device of the merges; None on a CPU.

    ``alone`` says that no task is measured by the model of this process.

    Raises:
        MergeError: what is left does not hold the merge.
    """
    device = torch.device(str(options.device))
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info(device)
    held, merge = device_bytes(space, spec, options)
    here = torch.cuda.memory_reserved(device)
    share = share_beside(total, free, 0 if alone else max(0, held - here))
    if share * total <= merge:
        raise MergeError(
            f"vLLM would have {bytes_in_words(int(share * total))} of {device}, and a "
            f"merge alone takes {bytes_in_words(merge)}; set 'task_vectors: memory' or "
            "'merge: disk' in the map block, or 'engine: hf', or use a GPU of its own"
        )
    return share
