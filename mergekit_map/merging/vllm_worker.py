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

from mergekit_map.merging.recording import Recorded, open_recorded

NAME = f"{__name__}.MergeWriter"  # what vLLM is told


class MergeWriter:
    """Writes merges into the model of its vLLM worker."""

    # Of vLLM's worker.
    model_runner: Any
    reload_weights: Any
    # vLLM lets no name of its own be taken again, so there are few here.
    merge_tensors: _Tensors

    def open_merge(self, recording: str) -> list[str]:
        """Open a recorded merge; return the names of its tensors."""
        self.merge_tensors = _Tensors(open_recorded(Path(recording)))
        return sorted(self.merge_tensors.layout)

    def write_merge(self, coefficients: Mapping[str, float]) -> list[str]:
        """Write the merge with these coefficients; return what was written.

        Raises:
            RuntimeError: vLLM did not take all tensors, or kept some of its own.
        """
        model = self.model_runner.get_model()
        written: list[str] = []
        with _loaded_names(model) as loaded:
            found = self.merge_tensors.at(coefficients)
            self.reload_weights(weights_iterator=_collect_names(found, written))
        left = {name for name, _ in model.named_parameters()} - loaded
        if left:
            raise RuntimeError(
                f"vLLM left {len(left)} of its parameters as they were, {min(left)} "
                "among them"
            )
        return sorted(written)


class _Tensors:
    """The tensors of a checkpoint of a merge, at any coefficients."""

    def __init__(self, recorded: Recorded):
        self.layout: dict[str, tuple[list[int], torch.dtype]] = {}
        self._fixed: dict[str, torch.Tensor] = {}  # that no coefficient changes
        self._recorded = recorded
        for file in sorted(recorded.checkpoint.glob("*.safetensors")):
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - no mapping
                    self._add(name, tensors)

    def _add(self, name: str, tensors: Any) -> None:
        part = tensors.get_slice(name)
        dtype = part[:0].dtype if part.get_shape() else tensors.get_tensor(name).dtype
        self.layout[name] = (part.get_shape(), dtype)
        if name not in self._recorded.replays:
            self._fixed[name] = tensors.get_tensor(name)

    def at(
        self, coefficients: Mapping[str, float]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the merged tensors one after the other."""
        for name, (shape, dtype) in self.layout.items():
            if name in self._fixed:
                yield name, self._fixed[name]
                continue
            replay = self._recorded.replays[name]
            weights = self._recorded.weights.of(name, replay.models, coefficients)
            merged = torch.empty(shape, dtype=dtype)
            with torch.no_grad():
                replay.write(weights, merged)
            yield name, merged


@contextmanager
def _loaded_names(model: Any) -> Iterator[set[str]]:
    """Collect the names of parameters that a model of vLLM loads."""
    loaded: set[str] = set()
    load = model.load_weights

    def listen(weights: Iterable[tuple[str, torch.Tensor]]) -> set[str] | None:
        found: set[str] | None = load(weights)
        loaded.update(found or ())
        return found

    model.load_weights = listen
    try:
        yield loaded
    finally:
        del model.load_weights


def _collect_names(
    tensors: Iterable[tuple[str, torch.Tensor]], names: list[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors:
        names.append(name)
        yield name, tensor
