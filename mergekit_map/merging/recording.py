"""A recorded merge: a folder from which any process can compute merges.

One pass of mergekit, with a ``map_*`` method in the place of the built-in one, writes
an ordinary checkpoint and the replay of each of its tensors. Both are kept, under a
name that digests all that decides them, so that the next search of this merge needs no
such pass. Tensors are mapped into memory: processes share their pages. A folder gets
its name when all its files are on the disk.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from mergekit.common import ModelPath, ModelReference
from mergekit.merge_methods.base import (
    PerInputValues,
    TensorEntry,
    TensorGroup,
    TensorMetadata,
)
from mergekit.options import MergeOptions

from mergekit_map.errors import MergeError
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.devices import recording_bytes
from mergekit_map.merging.methods import recordable_method, recording
from mergekit_map.merging.recipe import merge_identity, space_digest
from mergekit_map.merging.replay import MethodReplay, Replay, TaskVectorReplay
from mergekit_map.merging.space import MergeSpace, WeightTable, weight_table
from mergekit_map.merging.validation import method_spec, settings_of
from mergekit_map.models.references import referenced_models
from mergekit_map.utils.files import (
    digest,
    read_json_or_nothing,
    sha256,
    sha256_of_file,
    whole_folder,
    write_json,
)
from mergekit_map.utils.progress import stage
from mergekit_map.utils.recordings_cache import (
    CONTENTS,
    free_bytes,
    recordings_folder,
    remove_leftovers,
)
from mergekit_map.utils.text import bytes_in_words

# Of the coefficients of the recorded merge. With weights that are alike, tensors that
# are tied could happen to be equal and be loaded as one.
GENERIC = 0.6180339887498949
_SHARD_BYTES = 1 << 26
_END_BYTES = 1 << 20  # of a large file: more than headers and directories take
_MODEL = "model"  # the checkpoint
_WEIGHTS = "weights.pt"
_ADVICE = (
    "set MERGEKIT_MAP_HOME to a folder with room (/dev/shm lies in memory), or set "
    "'merge: disk' in the map block"
)
_CLASSES = [  # what torch may restore from files
    *(WeightTable, TaskVectorReplay, MethodReplay, TensorGroup, TensorEntry),
    *(TensorMetadata, PerInputValues, ModelReference, ModelPath),
]
_OPTIONS = (  # further options of mergekit that may change a bit
    *("allow_crimes", "copy_tokenizer", "low_cpu_memory", "read_to_gpu"),
    *("trust_remote_code", "unsafe_truncate_embeddings"),
)
_PACKAGES = ("mergekit", "torch", "transformers", "safetensors", "peft")


@dataclass(frozen=True, eq=False)
class Recorded:
    """A recorded merge, with the replay of each of its tensors."""

    checkpoint: Path  # as mergekit wrote it, at ``GENERIC``
    replays: Mapping[str, Replay]  # by tensor of the checkpoint
    weights: WeightTable


def record(space: MergeSpace, options: MergeOptions) -> Path:
    """Return the folder of a recorded merge; record it if there is none."""
    folder = recordings_folder() / recording_key(space, options)
    try:
        if not is_whole(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers()
            with FileLock(folder.with_name(f".{folder.name}.lock")):
                _record_anew(folder, space, options)
    except (OSError, RuntimeError) as error:  # the latter by torch on a full disk
        raise MergeError(
            f"the merge cannot be recorded in {folder}: {error}; if that is for want "
            f"of space or of rights there, {_ADVICE}"
        ) from None
    with suppress(OSError):  # of another user, who lets us read
        os.utime(folder)
    return folder


def _record_anew(folder: Path, space: MergeSpace, options: MergeOptions) -> None:
    if is_whole(folder):
        return  # another process was faster
    if folder.exists():  # damaged
        shutil.rmtree(folder)
    wanted, free = recording_bytes(space), free_bytes()
    if wanted > free:
        raise MergeError(
            f"{bytes_in_words(wanted)} are needed in {folder.parent}, where "
            f"{bytes_in_words(free)} are free (mergekit-map cache lists what is kept "
            f"there); free some, {_ADVICE}"
        )
    with whole_folder(folder) as place:
        _record_into(place, space, options)
        if recording_key(space, options) != folder.name:
            raise MergeError("models changed while they were merged; start again")


def is_whole(folder: Path) -> bool:
    """Whether there is a recording, with all files as they were written."""
    found = read_json_or_nothing(folder / CONTENTS).get("files")
    return found is not None and found == _written_files(folder)


def _written_files(folder: Path) -> dict[str, str]:
    paths = (p for p in folder.rglob("*") if p.is_file() and p.name != CONTENTS)
    return {path.relative_to(folder).as_posix(): _ends(path) for path in paths}


def _ends(path: Path) -> str:
    """Return the size of a file and a digest of both ends, which have its headers."""
    with path.open("rb") as file:
        size, start = os.fstat(file.fileno()).st_size, file.read(_END_BYTES)
        file.seek(max(0, size - _END_BYTES))
        return f"{size} {sha256(start + file.read())}"


def open_recorded(folder: Path) -> Recorded:
    """Open what ``record`` recorded, without a pass of mergekit; tensors are mapped."""
    replays: dict[str, Replay] = {}
    with torch.serialization.safe_globals(_CLASSES):
        weights = torch.load(folder / _WEIGHTS, weights_only=True)
        for path in sorted(folder.glob("replays-*.pt")):
            replays |= torch.load(path, mmap=True, weights_only=True)
    return Recorded(folder / _MODEL, replays, weights)


def _record_into(folder: Path, space: MergeSpace, options: MergeOptions) -> None:
    waiting: dict[str, Replay] = {}  # at most a shard and the last replay
    numbers = itertools.count(1)

    def flush() -> None:
        torch.save(waiting, folder / f"replays-{next(numbers):05d}.pt")
        waiting.clear()

    def keep(name: str, replay: Replay) -> None:
        # A view would bring along all that it is a part of.
        waiting[name] = replay.with_tensors(lambda t: t.contiguous().clone().cpu())
        if sum(kept.n_bytes for kept in waiting.values()) >= _SHARD_BYTES:
            flush()

    config = space.config(space.generic(GENERIC))
    twin = {"merge_method": recordable_method(config["merge_method"])}
    # Small shards leave memory early.
    changes = {"safe_serialization": True, "out_shard_size": _SHARD_BYTES}
    quiet = options.model_copy(update={**changes, "quiet": True})
    models = list(referenced_models(space.template))
    names = ", ".join(Path(name).name for name in models)
    size = bytes_in_words(recording_bytes(space))
    with stage(f"reading the models {names} ({size})"):
        with recording(keep):
            write_checkpoint({**config, **twin}, folder / _MODEL, quiet)
        flush()
        model_config = transformers.AutoConfig.from_pretrained(
            folder / _MODEL, trust_remote_code=options.trust_remote_code
        )
        torch.save(weight_table(space, model_config, options), folder / _WEIGHTS)
    about = {"method": space.template["merge_method"], "models": models}
    write_json(folder / CONTENTS, {**about, "files": _written_files(folder)})
    for path in sorted(folder.rglob("*")):  # on the disk before it has its name
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def recording_key(space: MergeSpace, options: MergeOptions) -> str:
    """Return a digest of the content of a merge and of the code that makes it."""
    given = options.model_dump(mode="json")
    code = sorted(Path(__file__).parent.glob("*.py"))  # which releases may change
    return digest(
        {
            "merges": space_digest(merge_identity(space, options)),
            "order": space.names,  # in which terms are added
            "code": digest([[path.name, sha256_of_file(path)] for path in code]),
            "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "machine": _machine(space, options),
            "options": {name: given[name] for name in _OPTIONS},
        }
    )


def _machine(space: MergeSpace, options: MergeOptions) -> list[Any]:
    device = torch.device(str(options.device))
    machine: list[Any] = [torch.backends.cpu.get_cpu_capability()]
    if device.type == "cuda":
        machine.append(torch.cuda.get_device_name(device))
    parameters = method_spec(space.template).shared_parameters
    default = {p.name: p.default for p in parameters}.get("rescale")
    # Threads of a CPU add up in another order, where a norm is kept.
    if device.type == "cpu" and any([default, *settings_of(space.template, "rescale")]):
        machine.append(torch.get_num_threads())
    return machine
