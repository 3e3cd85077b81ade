"""Whether the weights of a model can be what its config.json describes.

What no model can be is refused before transformers builds it: by its own config.json a
model may have a billion layers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    PretrainedConfig,
)

from mergekit_map.models.findings import Finding, some
from mergekit_map.models.headers import TensorHeader
from mergekit_map.models.settings import Settings

# What there must be one of, by the names of the entries that mean the same thing.
_NEEDED = re.compile(
    r"hidden_size|num_(hidden_|attention_)?(layers|heads)|vocab_size|head_dim"
    r"|num_key_value_heads|intermediate_size|n_(embd|layer|head)|d_model|ffn_dim"
)
_LAYERS = re.compile(r"num_\w*(layers|blocks|experts)|n_layers?|n_\w*experts")
_LARGEST = 2**31 - 1  # of what is counted
_MOST_LAYERS = 10_000  # where tensors are not known

_ADVICE = "put it right, or download the model again"

# Tensors of numbers that are counted, not learned.
_COUNTS = re.compile(r"(position_ids|num_batches_tracked|relative_position_index)$")


def impossible(config: Settings, n_tensors: int | None, where: str = "") -> str:
    """Say what of a config.json no model can have; nothing where all of it may be.

    Layers and experts are at most as many as there are tensors, as far as is known.
    """
    most = max(n_tensors or 0, _MOST_LAYERS)
    for key, value in config.items():
        if isinstance(value, dict) and (found := impossible(value, n_tensors, key)):
            return found
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        name = f"{where}.{key}" if where else key
        if isinstance(value, int) and abs(value) > 2**63 - 1:
            return f"{name} has {len(str(abs(value)))} digits"
        if _NEEDED.fullmatch(key) and not value >= 1:
            return f"{name} must be at least 1, got {value}"
        if _LAYERS.fullmatch(key) and not value <= most:
            return f"{name} is {value:.6g}, and there are no more than {most} tensors"
        if _NEEDED.fullmatch(key) and value > _LARGEST:
            return f"{name} must be at most {_LARGEST}, got {value:.6g}"
    return ""


def check_numbers(
    headers: Mapping[str, TensorHeader], weights: Collection[str] | None
) -> Iterator[Finding]:
    """List weights that are no floating-point numbers.

    ``weights`` are the tensors that a merge is made of, where that is known.
    """
    codes = [
        name
        for name, header in headers.items()
        if not header.is_float and _is_weight(name, weights)
    ]
    if codes:
        kinds = ", ".join(sorted({headers[name].dtype for name in codes}))
        what = "complex numbers" if kinds == "C64" else "integers"
        cause = f"{len(codes)} of its weights are {what} ({kinds}: {some(codes)}): "
        cause += "codes, not numbers that can be added up"
        advice = "take the model that it was quantized from"
        yield Finding("integers", "error", cause, advice)


def check_shapes(
    config: PretrainedConfig, headers: Mapping[str, TensorHeader], path: str
) -> Iterator[Finding]:
    """Compare the tensors of a language model with those that its config.json wants."""
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    try:
        build: Any = AutoModelForCausalLM.from_config
        with torch.device("meta"):
            model = build(config)
    except Exception as error:  # noqa: BLE001 - whatever its code stumbles over
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        cause = f"transformers cannot build what {path} describes: {reason}"
        yield Finding("configuration", "error", cause, _ADVICE)
        return
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    other = [
        f"{name} has shape {list(headers[name].shape)} here and {list(shape)} there"
        for name, shape in wanted.items()
        # Some kinds are stored turned round.
        if name in headers and sorted(headers[name].shape) != sorted(shape)
    ]
    if other:
        cause = f"{len(other)} of its tensors are not what {path} describes: {other[0]}"
        yield Finding("configuration", "error", cause, _ADVICE)


def _is_weight(name: str, weights: Collection[str] | None) -> bool:
    if weights is not None:
        return name in weights
    return name.endswith(".weight") or not _COUNTS.search(name)
