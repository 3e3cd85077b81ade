"""Merging inside the workers of vLLM, into the model that they serve.

vLLM mixes ``MergeWriter`` into its worker class (``worker_extension_cls``) and calls
its methods by name, in every worker. Each worker merges whole tensors, as in a
checkpoint; vLLM itself slices and fuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from mergekit_map.merging.recording import Recorded, open_recorded

NAME = f"{__name__}.MergeWriter"  # what vLLM is told


class MergeWriter:
    """Writes merges into the model of its vLLM worker."""

    # Of vLLM's worker.
    model_runner: Any
    reload_weights: Any
    # vLLM lets no name of its own be taken again, so there are few here.
    recorded_merge: Recorded

    def open_merge(self, recording: str) -> list[str]:
        """Open a recorded merge; return the names of its tensors."""
        self.recorded_merge = open_recorded(Path(recording))
        return sorted(name for name, _ in _stored(self.recorded_merge.checkpoint))

    def write_merge(self, coefficients: Mapping[str, float]) -> list[str]:
        """Write the merge with these coefficients; return what was written.

        Raises:
            RuntimeError: vLLM did not take all tensors, or kept some of its own.
        """
        model = self.model_runner.get_model()
        written: list[str] = []
        with _loaded_names(model) as loaded:
            tensors = _merged(self.recorded_merge, coefficients, written)
            self.reload_weights(weights_iterator=tensors)
        left = {name for name, _ in model.named_parameters()} - loaded
        if left:
            raise RuntimeError(
                f"vLLM left {len(left)} of its parameters as they were, {min(left)} "
                "among them"
            )
        return sorted(written)


def _merged(
    recorded: Recorded, coefficients: Mapping[str, float], written: list[str]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a merge one after the other, and note their names."""
    for name, stored in _stored(recorded.checkpoint):
        written.append(name)
        replay = recorded.replays.get(name)
        if replay is None:
            yield name, stored
            continue
        weights = recorded.weights.of(name, replay.models, coefficients)
        merged = torch.empty_like(stored)
        with torch.no_grad():
            replay.write(weights, merged)
        yield name, merged


def _stored(checkpoint: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a checkpoint, mapped into memory."""
    for file in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                yield name, tensors.get_tensor(name)


@contextmanager
def _loaded_names(model: Any) -> Iterator[set[str]]:
    """Collect the names of parameters that a model of vLLM loads."""
    loaded: set[str] = set()
    load = model.load_weights

    def listen(weights: Iterable[tuple[str, Tensor]]) -> set[str] | None:
        found: set[str] | None = load(weights)
        loaded.update(found or ())
        return found

    model.load_weights = listen
    try:
        yield loaded
    finally:
        del model.load_weights
