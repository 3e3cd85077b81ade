"""A merged model that stays in memory and takes new coefficients in place.

The checkpoint of a recorded merge is loaded once, here or by vLLM. So the tokenizer,
the configuration, tied weights and tensors that do not depend on the weights are those
that mergekit writes. From then on, new coefficients need no further pass of mergekit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from mergekit.options import MergeOptions
from safetensors import safe_open
from torch import Tensor

from mergekit_map.errors import MergeError
from mergekit_map.merging.checkpoint import load_checkpoint
from mergekit_map.merging.devices import Place, choose_place
from mergekit_map.merging.recording import Recorded, open_recorded, record
from mergekit_map.merging.replay import MethodReplay, Replay
from mergekit_map.merging.space import MergeSpace, WeightTable
from mergekit_map.utils.progress import stage
from mergekit_map.utils.text import bytes_in_words

MERGE_WRITER = f"{__name__}.MergeWriter"  # as vLLM is told


@dataclass(eq=False)
class ResidentMerge:
    """A model with the weights of the coefficients last written."""

    model: transformers.PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerBase | None  # of language models only
    replays: Mapping[str, Replay]
    weights: WeightTable
    # Of tensors that a checkpoint stores in another dtype than the model has in memory.
    stored_dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)

    def __post_init__(self) -> None:
        targets = self.model.state_dict()
        self._layouts = {n: _layout(targets[n]) for n in self.replays if n in targets}

    @torch.no_grad()
    def write(self, coefficients: Mapping[str, float]) -> None:
        """Write the merge with these coefficients into the model, bit for bit."""
        # Read the tensors anew each time: whoever evaluates may tie or wrap them.
        targets = self.model.state_dict(keep_vars=True)
        self._refuse_unwritable(targets)
        jobs = []
        for name, replay in self.replays.items():
            weights = self.weights.of(name, replay.models, coefficients)
            dtype = self.stored_dtypes.get(name)
            jobs.append(partial(_write, replay, weights, targets[name], dtype))
        on_cpu = all(target.device.type == "cpu" for target in targets.values())
        # Norms depend on the number of threads; a GPU has no room for several tensors.
        is_method = any(isinstance(r, MethodReplay) for r in self.replays.values())
        if is_method or not on_cpu:
            for job in jobs:
                job()
        else:
            _run_side_by_side(jobs)

    def _refuse_unwritable(self, targets: Mapping[str, Tensor]) -> None:
        """Refuse tensors of another layout, and placeholders of offloaded ones.

        Writing would convert the merge, so that another model were measured than the
        recipe's, or have no effect; neither raises an error.
        """
        if wrong := [
            name
            for name, layout in self._layouts.items()
            if name not in targets
            or targets[name].is_meta
            or _layout(targets[name]) != layout
        ]:
            raise MergeError(
                f"{len(wrong)} tensors of the model, {wrong[0]} among them, are "
                "offloaded, or were removed or changed in dtype or shape since it was "
                "loaded: change a copy in a python task (copy.deepcopy(model)), and "
                "take a device that holds the whole model (--device cpu does not "
                "offload), or set 'merge: disk' in the map block"
            )


def _layout(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


def _write(
    replay: Replay, weights: Sequence[float], target: Tensor, dtype: torch.dtype | None
) -> None:
    if target.device.type != "cpu":
        replay = replay.with_tensors(lambda t: t.to(target.device, non_blocking=True))
    replay.write(weights, target)
    if dtype is not None:
        target.copy_(target.to(dtype))


def _run_side_by_side(jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs on as many threads as torch would use, each of one thread.

    torch would split every operation over its threads and wait for all of them each
    time, which on a busy machine takes many times longer than the computation.
    """

    def start() -> None:
        torch.set_num_threads(1)  # of this thread, and of threads to come
        torch.set_grad_enabled(mode=False)

    count = torch.get_num_threads()
    with ThreadPoolExecutor(count, initializer=start) as pool:
        list(pool.map(lambda job: job(), jobs))
    torch.set_num_threads(count)


@contextmanager
def resident_merge(
    space: MergeSpace,
    options: MergeOptions,
    task_vectors: Literal["auto"] | Place = "auto",
) -> Iterator[ResidentMerge]:
    """Load a merge, recorded if need be, with base and task vectors in their place."""
    recorded = open_recorded(record(space, options))
    files = recorded.checkpoint.glob("*.safetensors")
    size = bytes_in_words(sum(file.stat().st_size for file in files))
    with stage(f"loading a model that takes the weights of each merge ({size})"):
        model, tokenizer = load_checkpoint(recorded.checkpoint, options)
    model.name_or_path = model.config.name_or_path = ""  # that has other weights
    if hasattr(model.base_model, "layers_are_rescaled"):
        raise MergeError(
            "RWKV models change their weights as they run, so they cannot be merged in "
            "memory; set 'merge: disk' in the map block, and search into another folder"
        )
    if missing := [name for name in recorded.replays if name not in model.state_dict()]:
        raise MergeError(
            f"{len(missing)} tensors of the checkpoint, {missing[0]} among them, have "
            "another name or layout in the loaded model, so it cannot be merged in "
            "memory; set 'merge: disk' in the map block"
        )
    n_bytes = sum(replay.n_bytes for replay in recorded.replays.values())
    place = choose_place(task_vectors, torch.device(str(options.device)), n_bytes)
    replays = recorded.replays
    if place != "mapped":
        where = "onto the device" if place == "device" else "into memory"
        with stage(f"reading base and task vectors {where}"):
            replays = _placed(replays, place, model.state_dict())
    in_memory = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    stored = {name: tensor.dtype for name, tensor in _stored(recorded.checkpoint)}
    rounded = {n: d for n, d in stored.items() if in_memory.get(n, d) != d}
    weights = recorded.weights
    del recorded  # its tensors may lie elsewhere now
    yield ResidentMerge(model, tokenizer, replays, weights, rounded)


def _placed(
    replays: Mapping[str, Replay], place: Place, targets: Mapping[str, Tensor]
) -> dict[str, Replay]:
    """Move the tensors of replays; those on the device go to that of their targets."""

    def move(device: torch.device, tensor: Tensor) -> Tensor:
        if place == "device":
            return tensor.to(device)
        tensor = tensor.cpu()
        return tensor.pin_memory() if device.type == "cuda" else tensor.clone()

    return {
        name: replay.with_tensors(partial(move, targets[name].device))
        for name, replay in replays.items()
    }


class MergeWriter:
    """Writes merges into the model of its vLLM worker.

    vLLM mixes it into its worker class (``worker_extension_cls``) and calls its methods
    by name, in every worker. Each worker merges whole tensors, as in a checkpoint; vLLM
    itself slices and fuses them.
    """

    reload_weights: Any  # of vLLM's worker
    # vLLM lets no name of its own be taken again, so there are few here.
    recorded_merge: Recorded

    def open_merge(self, recording: str) -> None:
        """Open a recorded merge."""
        self.recorded_merge = open_recorded(Path(recording))

    def write_merge(self, coefficients: Mapping[str, float]) -> None:
        """Write the merge with these coefficients."""
        self.reload_weights(weights_iterator=_merged(self.recorded_merge, coefficients))


def _merged(
    recorded: Recorded, coefficients: Mapping[str, float]
) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in _stored(recorded.checkpoint):
        if replay := recorded.replays.get(name):
            weights = recorded.weights.of(name, replay.models, coefficients)
            tensor = torch.empty_like(tensor)
            with torch.no_grad():
                replay.write(weights, tensor)
        yield name, tensor


def _stored(checkpoint: Path) -> Iterator[tuple[str, Tensor]]:
    for file in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                yield name, tensors.get_tensor(name)
