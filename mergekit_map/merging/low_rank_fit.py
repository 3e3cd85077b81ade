"""The choice of adapters to keep in low rank, from headers and settings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from mergekit.common import dtype_from_name
from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.merging.methods import builtin_method, drops_parts, elects_signs
from mergekit_map.models.adapters import Adapter, read_adapter
from mergekit_map.models.files import find_model
from mergekit_map.models.references import Reference, models_with_adapter
from mergekit_map.models.safetensors_headers import TensorHeader

# Ways to begin a training that leave the base as it is.
_BEGINNINGS = (True, False, None, "gaussian")


class NotKeptInLowRank(Exception):
    """The reason to use mergekit's merged copy of an adapter."""


@dataclass(frozen=True, eq=False)
class Fit:
    """An adapter whose task vector may be the product of its matrices."""

    folder: Path
    adapter: Adapter
    headers: Mapping[str, TensorHeader]  # of its base
    dtype: torch.dtype  # in which that is stored, loaded and merged


def fit_of(text: str, merge: MergeConfig, options: MergeOptions) -> Fit:
    """Return the fit of an adapter, named behind its base.

    Raises:
        NotKeptInLowRank: its task vector may differ from the product of its matrices.
    """
    _check_method(merge)
    reference, base = Reference.parse(text), str(merge.get("base_model"))
    if str(reference.model) != base:
        raise NotKeptInLowRank(f"it stands on {reference.model}, the merge on {base}")
    files = find_model(str(reference.adapter))
    adapter = read_adapter(files)
    _check_settings(adapter)
    headers = find_model(base, weights=False).headers()
    dtype = _stored_dtype(headers, merge.get("dtype"), options)
    return Fit(files.folder, adapter, headers, dtype)


def count_in_low_rank(merge: MergeConfig, options: MergeOptions) -> int:
    """Count the adapters of a merge that need no whole task vector."""
    count = 0
    for text in models_with_adapter(merge):
        with suppress(NotKeptInLowRank, MergeError):  # what is wrong is told elsewhere
            fit_of(text, merge, options)
            count += 1
    return count


def _check_method(merge: MergeConfig) -> None:
    """Refuse methods that use more of a model than its task vector."""
    name = builtin_method(merge["merge_method"])
    if elects_signs(name) is None:
        raise NotKeptInLowRank(f"{name} merges models, not task vectors")
    if drops_parts(merge):
        raise NotKeptInLowRank(f"{name} drops parts of task vectors")
    for key in ("slices", "modules"):
        if key in merge:
            raise NotKeptInLowRank(f"tensors of '{key}' have other names")


def _check_settings(adapter: Adapter) -> None:
    settings = adapter.settings
    if adapter.obscure:
        raise NotKeptInLowRank(f"it has {adapter.obscure}")
    if settings.get("use_dora"):
        raise NotKeptInLowRank("DoRA brings rows to a length (use_dora)")
    if adapter.whole:
        name = next(iter(adapter.whole))
        raise NotKeptInLowRank(f"it replaces whole tensors ({name})")
    if settings.get("init_lora_weights", True) not in _BEGINNINGS:
        way = settings["init_lora_weights"]
        raise NotKeptInLowRank(f"it changes the base model (init_lora_weights: {way})")
    if settings.get("bias", "none") != "none":
        raise NotKeptInLowRank(f"it has biases (bias: {settings['bias']})")


def _stored_dtype(
    headers: Mapping[str, TensorHeader], dtype: str | None, options: MergeOptions
) -> torch.dtype:
    """Return the one dtype in which the base is stored, loaded and merged."""
    dtypes = {header.dtype for header in headers.values()}
    if len(dtypes) != 1 or not dtypes <= {"F32", "BF16", "F16"}:
        raise NotKeptInLowRank("its base is not stored in one dtype")
    stored = next(iter(headers.values())).torch_dtype
    for name in (dtype, options.lora_merge_dtype):
        if name is not None and dtype_from_name(name) != stored:
            kind = str(stored).removeprefix("torch.")
            raise NotKeptInLowRank(f"its base is stored in {kind}, merged in {name}")
    return stored
