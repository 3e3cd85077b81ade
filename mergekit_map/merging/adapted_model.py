"""LoRA adapters that mergekit reads as merged models without a merged copy on disk.

mergekit reads tensors one at a time. When it reads a tensor that an adapter changes,
peft's own layer merges that one tensor; all other tensors are the base model's. peft
also interprets the settings of an adapter: it is attached to a model without weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from mergekit.common import ModelReference, get_auto_cls
from mergekit.io.lazy_tensor_loader import LazyTensorLoader
from mergekit.io.tasks import LoaderCache
from mergekit.options import MergeOptions
from peft.tuners.lora.layer import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import load_peft_weights
from torch import Tensor
from torch.nn import Parameter

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.merging.checkpoint import REFUSALS
from mergekit_map.merging.low_rank import Factors, keeping_factors
from mergekit_map.merging.low_rank_fit import Fit, NotKeptInLowRank, fit_of
from mergekit_map.models.references import models_with_adapter
from mergekit_map.utils.progress import stage
from mergekit_map.utils.text import listed

_NAME = "default"
_PREFIX = "base_model.model."


@dataclass(frozen=True, eq=False)
class AdaptedModel:
    """A base model with an adapter; each tensor is merged when it is read."""

    reference: ModelReference
    layers: Mapping[str, Linear]  # by tensor, around weights without values

    @cached_property
    def factors(self) -> dict[str, Factors]:
        """Return the factors of the adapter for each tensor that it changes."""
        return {name: _factors(layer) for name, layer in self.layers.items()}

    def merged(self, name: str, tensor: Tensor) -> Tensor:
        """Merge the adapter into a tensor, as peft does in a whole model."""
        layer = self.layers.get(name)
        if layer is None:
            return tensor
        base = layer.get_base_layer()
        empty = base.weight
        base.weight = Parameter(tensor.clone(), requires_grad=False)
        try:
            layer.merge(adapter_names=[_NAME])
            return base.weight.data
        finally:
            base.weight = empty
            layer.merged_adapters.clear()


def _factors(layer: Linear) -> Factors:
    nothing = torch.empty(0, dtype=torch.int64)
    return Factors(
        a=layer.lora_A[_NAME].get_parameter("weight").data,
        b=layer.lora_B[_NAME].get_parameter("weight").data,
        scaling=float(layer.scaling[_NAME]),
        transposed=bool(layer.fan_in_fan_out),
        places=nothing,
        values=nothing.to(next(layer.get_base_layer().parameters()).dtype),
    )


@dataclass(frozen=True, eq=False)
class _Tensors:
    """The source from which mergekit reads the tensors of an adapted model."""

    model: AdaptedModel
    base: LazyTensorLoader

    @property
    def index(self) -> Any:
        """Return the names of the tensors."""
        return self.base.index

    def get_tensor(self, key: str, device: str = "cpu", **more: Any) -> Tensor | None:
        """Read a tensor and merge the adapter into it."""
        tensor = self.base.get_tensor(key, device="cpu", **more)
        return None if tensor is None else self.model.merged(key, tensor).to(device)

    def flush(self) -> None:
        """Close the files."""
        self.base.flush()


@dataclass(frozen=True, eq=False)
class Adapters:
    """The adapters of a merge: those kept in low rank, and why others are not."""

    kept: Mapping[ModelReference, AdaptedModel]
    merged: Mapping[str, str]  # by adapter, why mergekit's merged copy is used

    @property
    def in_words(self) -> str:
        """Describe how the adapters are merged; the text follows the model names."""
        words = ""
        if self.kept:
            words = f"; in low rank: {listed(_name(m) for m in self.kept)}"
        for adapter, reason in self.merged.items():
            words += f"; {adapter} is merged into a copy of its base: {reason}"
        return words

    @contextmanager
    def read_by_mergekit(self, options: MergeOptions) -> Iterator[None]:
        """Let mergekit read the adapters in low rank, without merged copies."""
        cache = LoaderCache()
        for reference, model in self.kept.items():
            base = ModelReference(model=reference.model)
            loader = base.lazy_loader(
                cache_dir=options.transformers_cache,
                lazy_unpickle=options.lazy_unpickle,
            )
            cache.loaders[reference] = _Tensors(model, loader)
        try:
            yield
        finally:
            for reference in self.kept:
                cache.loaders.pop(reference, None)

    @contextmanager
    def recorded(self, options: MergeOptions) -> Iterator[None]:
        """Let mergekit read the adapters, and keep their task vectors as factors."""
        factors = {reference: model.factors for reference, model in self.kept.items()}
        with self.read_by_mergekit(options), keeping_factors(factors) as kept:
            yield
        if kept.whole:
            words = f"keeping {kept.whole} task vectors whole: factors give other bits"
            with stage(words):
                pass


def adapters_of(merge: MergeConfig, options: MergeOptions) -> Adapters:
    """Open the adapters of a merge whose task vectors stay in low rank."""
    kept, merged = {}, {}
    for text in models_with_adapter(merge):
        reference = ModelReference.parse(text)
        try:
            kept[reference] = _adapted(text, merge, options)
        except NotKeptInLowRank as reason:
            merged[_name(reference)] = str(reason)
    return Adapters(kept, merged)


def _name(reference: ModelReference) -> str:
    return Path(str(reference.lora)).name


def _adapted(text: str, merge: MergeConfig, options: MergeOptions) -> AdaptedModel:
    """Open an adapter on the base model of a merge.

    Raises:
        NotKeptInLowRank: its task vector may differ from the product of its matrices.
    """
    fit = fit_of(text, merge, options)
    parsed = ModelReference.parse(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        skeleton = _skeleton(parsed, fit.dtype, options)
        _check_names(skeleton, fit)
        try:
            config = peft.PeftConfig.from_pretrained(str(fit.folder))
            model = peft.get_peft_model(skeleton, config, low_cpu_mem_usage=True)
        except REFUSALS as error:  # which mergekit hears as well, and tells
            raise NotKeptInLowRank(f"peft refuses it: {error}") from None
    matrices = load_peft_weights(str(fit.folder), device="cpu")
    layers = {
        f"{name}.weight": _filled(name, module, matrices)
        for name, module in model.base_model.model.named_modules()
        if isinstance(module, BaseTunerLayer)
    }
    if matrices or layers.keys() != fit.adapter.matrices.keys():
        raise NotKeptInLowRank("peft puts it on other tensors than its file has")
    return AdaptedModel(parsed, layers)


def _skeleton(
    reference: ModelReference, dtype: torch.dtype, options: MergeOptions
) -> transformers.PreTrainedModel:
    """Build a model without weights, as mergekit would load it."""
    config = reference.config(trust_remote_code=options.trust_remote_code)
    if getattr(config, "dtype", None) not in (None, dtype):
        raise NotKeptInLowRank(f"its base is loaded in another dtype ({config.dtype})")
    loader = get_auto_cls(config.architectures[0])
    with torch.device("meta"):
        skeleton: transformers.PreTrainedModel = loader.from_config(
            config, dtype=dtype, trust_remote_code=options.trust_remote_code
        )
    return skeleton


def _check_names(skeleton: transformers.PreTrainedModel, fit: Fit) -> None:
    """Refuse models that transformers would save under other names, or with others."""
    tied = set(skeleton.all_tied_weights_keys)
    tied |= set(skeleton.all_tied_weights_keys.values())
    names, headers = set(skeleton.state_dict()), fit.headers
    twice = set(skeleton.all_tied_weights_keys) & headers.keys()
    if headers.keys() - names or names - tied - headers.keys() or twice:
        raise NotKeptInLowRank("its base has other tensors in memory than on disk")
    if tied & fit.adapter.matrices.keys():
        raise NotKeptInLowRank("it changes tensors that are tied")
    kept = (skeleton._keep_in_fp32_modules, skeleton._keep_in_fp32_modules_strict)
    if any(kept) and skeleton.dtype != torch.float32:
        raise NotKeptInLowRank("transformers keeps tensors of its base in float32")


def _filled(name: str, module: Any, matrices: dict[str, Tensor]) -> Linear:
    """Set the matrices of a layer, in the dtype that peft uses."""
    if type(module) is not Linear or module.lora_variant:
        raise NotKeptInLowRank(f"it changes {name}, a {type(module).__name__} of peft")
    for side in ("lora_A", "lora_B"):
        matrix = matrices.pop(f"{_PREFIX}{name}.{side}.weight", None)
        if matrix is None:
            raise NotKeptInLowRank(f"its settings change {name}, but no matrix does")
        matrix = matrix.to(torch.float32)
        getattr(module, side)[_NAME].weight = Parameter(matrix, requires_grad=False)
    return module
