"""LoRA adapters that mergekit reads as merged models without a merged copy on disk.

mergekit reads tensors one at a time. When it reads a tensor that an adapter changes,
peft's own layer merges that one tensor; all other tensors are the base model's. peft
also interprets the settings of an adapter: it is attached to a model without weights.
Headers and settings decide which adapters are kept in low rank.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from mergekit.common import ModelReference, dtype_from_name, get_auto_cls
from mergekit.io.lazy_tensor_loader import LazyTensorLoader
from mergekit.io.tasks import LoaderCache
from mergekit.options import MergeOptions
from peft.tuners.lora.layer import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import load_peft_weights
from torch import Tensor
from torch.nn import Parameter

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.merging.checkpoint import REFUSALS
from mergekit_map.merging.low_rank import Factors, keeping_factors
from mergekit_map.merging.methods import builtin_method, drops_parts, elects_signs
from mergekit_map.models.adapters import Adapter, read_adapter
from mergekit_map.models.files import find_model
from mergekit_map.models.references import Reference, models_with_adapter
from mergekit_map.models.safetensors_headers import TensorHeader
from mergekit_map.utils.progress import stage
from mergekit_map.utils.text import listed

_NAME = "default"
_PREFIX = "base_model.model."
# Ways to begin a training that leave the base as it is.
_BEGINNINGS = (True, False, None, "gaussian")


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
