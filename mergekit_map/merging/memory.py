"""Memory and disk space that a search needs, counted from headers.

Task vectors lie on the device, in host memory, or mapped from their files. They are
always merged on the device of the model, so that their place affects time and memory
and never a bit of a merge. On a CPU, mapped files are as fast as memory once their
pages are read; for a GPU, tensors elsewhere are copied there one by one, for each
merge.

The module also computes the share of a GPU that is left for an engine.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.merging.devices import (
    FOR_ACTIVATIONS,
    check_device,
    device_in_words,
    free_memory,
    shared_out,
)
from mergekit_map.merging.methods import drops_parts, elects_signs
from mergekit_map.merging.recipe import nests_checkpoints
from mergekit_map.merging.replay import Replay, with_tensors
from mergekit_map.merging.space import MergeSpace
from mergekit_map.models.adapters import read_adapter
from mergekit_map.models.facts import ModelFacts, read_facts
from mergekit_map.models.files import find_model
from mergekit_map.models.preflight import InspectedModel
from mergekit_map.models.references import (
    Reference,
    models_with_adapter,
    referenced_models,
)
from mergekit_map.utils.files import cache_home
from mergekit_map.utils.recordings_cache import lacking_room, recordings_folder
from mergekit_map.utils.text import bytes_in_words

Place: TypeAlias = Literal["device", "memory", "mapped"]

# Pinned memory is handed out in powers of two.
_PINNED = 2
_HOST = torch.device("cpu")


@dataclass(frozen=True)
class Storage:
    """The place of task vectors and base, and the reason for it as text."""

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
    """Return the fastest place for merging in which ``n_bytes`` fit.

    Args:
        asked: The place that the configuration asks for.
        device: The device of the evaluated model.
        n_bytes: Size of base and task vectors.
        besides: Further bytes that the device will hold.
        no_file: Why there is no file to map, if there is none.
    """
    if device.type == "cpu":
        if asked == "auto" and no_file:
            return Storage("memory", no_file)
        if asked == "auto":
            return Storage("mapped", "as fast as in memory, and processes share them")
        asked = "memory" if asked == "device" else asked
    if asked == "mapped" and no_file:
        return Storage("memory", f"not mapped as asked: {no_file}")
    if asked != "auto":
        return Storage(asked, "as asked")
    free = free_memory(device)
    if free is None or n_bytes + besides <= (1 - FOR_ACTIVATIONS) * free:
        return Storage("device", f"they fit on {device}")
    why = f"{device} has {bytes_in_words(free)} free"
    host = free_memory(_HOST)
    if no_file or host is None or _PINNED * n_bytes <= host:
        return Storage("memory", why)
    return Storage("mapped", f"{why}, the host {bytes_in_words(host)}")


def placed(
    replays: Mapping[str, Replay], place: Place, targets: Mapping[str, Tensor]
) -> dict[str, Replay]:
    """Move the tensors of replays; those on the device go to that of their targets."""

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
    """Copy the tensors of a replay to the device of its target."""
    if target.device.type == "cpu":
        return replay
    return with_tensors(replay, lambda t: t.to(target.device, non_blocking=True))


@dataclass(frozen=True)
class Need:
    """Bytes that are needed on a device or disk, and how many are free there now."""

    what: str
    where: str  # a device, a folder, or "mapped": any memory of the host that is free
    n_bytes: int
    free: int | None  # None where it is not known


@dataclass(frozen=True)
class Needs:
    """The memory and disk space that a search needs."""

    memory: Sequence[Need]
    disk: Sequence[Need]
    storage: Storage | None  # of the task vectors; None where none are held


@dataclass(frozen=True)
class _Copies:
    """Copies of the model that a merge holds in memory."""

    models: int
    in_low_rank: int  # of these
    n_bytes: int  # of one, in the type that merges are computed in
    shipped: int  # of one, in the type that merges are written in

    @property
    def held(self) -> int:
        """Return the bytes of base and task vectors."""
        return (self.models - self.in_low_rank) * self.n_bytes

    @property
    def recorded(self) -> int:
        """Return the bytes of a recording: base, task vectors, and a merge."""
        return self.held + self.shipped


def _copies(space: MergeSpace, facts: ModelFacts) -> _Copies:
    template = space.template
    return _Copies(
        models=len(referenced_models(template)),
        in_low_rank=_count_in_low_rank(template, facts),
        n_bytes=_copy_bytes(facts, template.get("dtype")),
        shipped=_copy_bytes(facts, template.get("out_dtype") or template.get("dtype")),
    )


def _copy_bytes(facts: ModelFacts, name: str | None) -> int:
    headers = [header for header in facts.headers.values() if header.is_float]
    dtype = dtype_from_name(name)
    if dtype is None:
        return sum(header.n_bytes for header in headers)
    return sum(header.n_elements for header in headers) * int(dtype.itemsize)


def _count_in_low_rank(merge: MergeConfig, facts: ModelFacts) -> int:
    """Count the adapters that need no whole task vector, by headers and settings."""
    if elects_signs(merge["merge_method"]) is None or drops_parts(merge):
        return 0
    dtype = dtype_from_name(merge.get("dtype"))
    stored = {
        header.torch_dtype for header in facts.headers.values() if header.is_float
    }
    if dtype is not None and stored != {dtype}:
        return 0
    count = 0
    for text in models_with_adapter(merge):
        with suppress(MergeError):  # the check of the models reports it
            count += read_adapter(
                find_model(str(Reference.parse(text).adapter))
            ).is_product
    return count


def needs(
    space: MergeSpace,
    spec: MapBlock,
    options: MergeOptions,
    models: Sequence[InspectedModel],
    beside: MergeSpace | None = None,
) -> Needs:
    """List the memory, without activations, and the disk space that a search needs.

    Files that are written anew for each merge count once. ``beside`` is the linear
    merge of base, parents and soup, if that is measured before the search.
    """
    facts = next((model.facts for model in models if model.facts is not None), None)
    if facts is None:
        return Needs((), (), None)
    copies = _copies(space, facts)
    disk = [*_sources(options, models), *_disk_needs(space, spec, copies)]
    recorded = 0 if beside is None else _copies(beside, facts).recorded
    if recorded and spec.merge == "memory" and not lacking_room(recorded):
        what = "base, parents and soup, recorded"
        disk.append(_disk_need(what, recordings_folder(), recorded))
    storage = _storage(spec, options, copies)
    return Needs(_memory_needs(space, spec, options, copies), disk, storage)


def _storage(spec: MapBlock, options: MergeOptions, copies: _Copies) -> Storage | None:
    if spec.merge != "memory":
        return None
    device = torch.device(str(options.device))
    no_file = lacking_room(copies.recorded)
    return choose_storage(
        spec.task_vectors, device, copies.held, copies.shipped, no_file=no_file
    )


def _memory_needs(
    space: MergeSpace, spec: MapBlock, options: MergeOptions, copies: _Copies
) -> list[Need]:
    device = torch.device(str(options.device))
    what, size = "the model under evaluation", copies.shipped
    elsewhere: list[Need] = []
    if storage := _storage(spec, options, copies):
        n, low = copies.models, copies.in_low_rank
        in_low_rank = f" ({low} in low rank)" if low else ""
        held = f"{n - 1} task vector{'s' * (n > 2)}{in_low_rank}, the base model"
        if space.template.get("base_model") is None:
            held = f"{n} models"
        if storage.place == ("memory" if device == _HOST else "device"):
            what = f"{held} and the one under evaluation"
            size += copies.held
        else:
            where = "mapped" if storage.place == "mapped" else "cpu"
            elsewhere = [Need(held, where, copies.held, free_memory(_HOST))]
        if spec.search.gradients and elects_signs(space.template["merge_method"]):
            what, size = f"{what}, its gradient", size + copies.n_bytes
    if device.type != "cpu":
        loading = Need("loading a merge", "cpu", copies.shipped, free_memory(_HOST))
        elsewhere.append(loading)
    free = free_memory(device)
    if shares := shared_out(size, str(device)):
        what, free = f"{what}, on {len(shares)} GPUs", sum(shares.values())
    return [Need(what, str(device), size, free), *elsewhere]


def check_room(space: MergeSpace, spec: MapBlock, options: MergeOptions) -> None:
    """Refuse, from headers, a search that does not fit on the requested device.

    The host's memory is not checked: how much of it is free is a guess.

    Raises:
        ConfigError: the device is not available.
        MergeError: the device has too little free memory.
    """
    check_device(options)
    if torch.device(str(options.device)).type == "cpu":
        return
    if copies := _copies_by_headers(space, options):
        refuse_shortages(_memory_needs(space, spec, options, copies))


def recording_bytes(space: MergeSpace, options: MergeOptions) -> int:
    """Estimate the disk space of a recording; 0 where headers cannot be read.

    Raises:
        MergeError: a model is not there.
    """
    copies = _copies_by_headers(space, options)
    return 0 if copies is None else copies.recorded


def _copies_by_headers(space: MergeSpace, options: MergeOptions) -> _Copies | None:
    first = next(iter(referenced_models(space.template)))
    front = str(Reference.parse(first).model)
    facts, _ = read_facts(find_model(front), front, options)
    return None if facts is None else _copies(space, facts)


def refuse_shortages(needs: Sequence[Need]) -> None:
    """Refuse needs that exceed the free memory of a device.

    Raises:
        MergeError: with the shortages.
    """
    for need in shortages([need for need in needs if need.where != "cpu"]):
        place, free = device_in_words(need.where), bytes_in_words(need.free or 0)
        raise MergeError(
            f"{need.what} need {bytes_in_words(need.n_bytes)} on {place}, and {free} "
            "are free there; write --device cpu, set 'merge: disk' in the map block, "
            "which holds one model there, or make room"
        )


def _disk_needs(space: MergeSpace, spec: MapBlock, copies: _Copies) -> Iterator[Need]:
    size = copies.shipped
    scratch = Path(tempfile.gettempdir())
    if spec.merge == "disk":
        yield _disk_need("each merge", scratch, size)
    elif lacking_room(copies.recorded):
        yield _disk_need("a merge, at the start", scratch, size)
    else:
        what = "all models, for fast merging (cache)"
        yield _disk_need(what, recordings_folder(), copies.recorded)
    yield _disk_need("the checkpoint of the chosen merge", Path.cwd(), size)
    pairs = len(space.names) - 2
    if nests_checkpoints(space, spec.search) and pairs > 0:
        yield _disk_need(f"{pairs} merges on the way", Path.cwd(), pairs * size)


def _sources(options: MergeOptions, models: Sequence[InspectedModel]) -> Iterator[Need]:
    fetched = set()
    for model in models:
        if model.facts is None:
            continue
        size = sum(header.n_bytes for header in model.facts.headers.values())
        files = model.facts.files
        if files.on_the_hub and files.folder not in fetched:
            fetched.add(files.folder)
            cache = options.transformers_cache or HF_HUB_CACHE
            yield _disk_need(f"download of {model.name}", Path(cache), size)
        if model.adapter is not None:
            merged = options.lora_merge_cache or cache_home() / "adapters"
            yield _disk_need(f"{model.name}, merged", Path(merged), size)


def _disk_need(what: str, folder: Path, n_bytes: int) -> Need:
    free = shutil.disk_usage(_existing(folder.absolute())).free
    return Need(what, str(folder.absolute()), n_bytes, free)


def shortages(needs: Sequence[Need]) -> Iterator[Need]:
    """Sum the needs of each device and disk; yield sums that exceed what is free."""
    places: dict[str | int, list[Need]] = {}
    for need in needs:
        if need.where != "mapped":
            places.setdefault(_place(need.where), []).append(need)
    for same in places.values():
        total, free = sum(need.n_bytes for need in same), same[0].free
        if free is not None and total > free:
            what = " and ".join(need.what for need in same)
            yield Need(what, same[0].where, total, free)


def _place(where: str) -> str | int:
    """Return the device, or the disk of a folder, which its folders share."""
    folder = Path(where)
    return _existing(folder).stat().st_dev if folder.is_absolute() else where


def _existing(folder: Path) -> Path:
    return next(path for path in [folder, *folder.parents] if path.exists())


_MOST = 0.9  # what vLLM takes when it is alone


def share_beside(total: int, free: int, wanted: int) -> float:
    """Return the share of a GPU that is left, rounded down to a hundredth.

    Args:
        total: Bytes that the GPU has.
        free: Bytes that are free now.
        wanted: Bytes that this process will need besides those it holds.
    """
    left = (free - wanted) / total - FOR_ACTIVATIONS
    return max(0.0, min(_MOST, math.floor(100 * left) / 100))


def engine_share(
    space: MergeSpace, spec: MapBlock, options: MergeOptions, *, alone: bool
) -> float | None:
    """Return the share of the merges' GPU for an engine; None on a CPU.

    ``alone`` means that the model of this process measures no task.

    Raises:
        MergeError: the rest does not hold the merge.
    """
    device = torch.device(str(options.device))
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info(device)
    copies = _copies_by_headers(space, options)
    if copies is None:
        held, merge = 0, 0
    else:
        held = _memory_needs(space, spec, options, copies)[0].n_bytes
        merge = copies.shipped
    here = torch.cuda.memory_reserved(device)
    share = share_beside(total, free, 0 if alone else max(0, held - here))
    if share * total <= merge:
        raise MergeError(
            f"vLLM would have {bytes_in_words(int(share * total))} of {device}, and a "
            f"merge alone takes {bytes_in_words(merge)}; set 'task_vectors: memory' or "
            "'merge: disk' in the map block, or 'engine: hf', or use a GPU of its own"
        )
    return share
