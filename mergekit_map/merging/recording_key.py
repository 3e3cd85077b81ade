"""What a recorded merge is known by: all that decides its tensors."""

from __future__ import annotations

import functools
import importlib.metadata
from pathlib import Path
from typing import Any

import torch
from mergekit.options import MergeOptions

from mergekit_map.files import digest, sha256_of_file
from mergekit_map.merging.entries import method_spec
from mergekit_map.merging.methods import builtin_method
from mergekit_map.merging.recipe import draws_random_numbers
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.stored_replays import layout
from mergekit_map.models.references import map_references, models_with_adapter
from mergekit_map.models.sources import fingerprint

_FORMAT = 1  # of the folder
_PACKAGES = ("mergekit", "torch", "transformers", "safetensors", "peft")

# Sources of a tokenizer that are no models.
_NO_MODELS = {"base", "union"}


def recording_key(space: MergeSpace, options: MergeOptions) -> str:
    """Digest what a merge is made of, wherever its models lie, and what makes it."""
    models: dict[str, int] = {}
    template = dict(
        map_references(
            space.template,
            lambda m: m if m in _NO_MODELS else str(models.setdefault(m, len(models))),
        )
    )
    method = builtin_method(template.pop("merge_method"))
    return digest(
        {
            "format": [_FORMAT, _own_code(), layout()],
            "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "method": method,
            "configuration": template,
            "models": [fingerprint(model) for model in models],
            # Terms are added in this order.
            "coefficients": [[c.name, c.places] for c in space.coefficients],
            "remainder": space.remainder,
            "machine": _machine(space, options),
            "options": _options(space, options),
        }
    )


@functools.cache
def _own_code() -> str:
    """Digest how tensors are prepared, which may change between two releases."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return digest([[path.name, sha256_of_file(path)] for path in files])


def _machine(space: MergeSpace, options: MergeOptions) -> list[Any]:
    device = torch.device(str(options.device))
    machine: list[Any] = [str(device), torch.backends.cpu.get_cpu_capability()]
    if device.type == "cuda":
        machine.append(torch.cuda.get_device_name(device))
    # Threads add up in another order, where a norm is kept.
    if "rescale" in {p.name for p in method_spec(space.template).shared_parameters}:
        machine.append(torch.get_num_threads())
    return machine


def _options(space: MergeSpace, options: MergeOptions) -> dict[str, Any]:
    names = [
        "allow_crimes",
        "copy_tokenizer",
        "low_cpu_memory",
        "read_to_gpu",
        "trust_remote_code",
        "unsafe_truncate_embeddings",
    ]
    if draws_random_numbers(space):
        names.append("random_seed")
    if models_with_adapter(space.template):
        names.append("lora_merge_dtype")
    given = options.model_dump(mode="json")
    return {name: given[name] for name in names}
