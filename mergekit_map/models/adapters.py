"""LoRA adapters: their tensors, their fit to a base model, and their base models.

mergekit expects ``base+adapter``. An adapter that a configuration names alone is merged
into the base model, if it was trained on that.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peft import PeftConfig
from peft.utils.other import get_pattern_key
from torch import Tensor

from mergekit_map.config.yaml_file import MergeConfig, map_references
from mergekit_map.errors import MergeError, in_words
from mergekit_map.models.facts import Finding, some
from mergekit_map.models.files import ModelFiles, TensorHeader, find_model
from mergekit_map.models.references import ModelPart, Reference, referenced_models

_PREFIX = "base_model.model."
_MATRIX = re.compile(r"(.+)\.(lora_A|lora_B)(?:\.weight)?")

# What belongs to rarer settings, or is a tensor of the base that peft saves, too.
_OTHER = re.compile(r"\.(lora_|token_adapter|base_layer\.)")

_MORE = (  # settings of which peft makes more than the product of two matrices
    *("alora_invocation_tokens", "layer_replication", "lora_bias", "target_parameters"),
    *("trainable_token_indices", "use_dora", "use_qalora"),
)

# Starts that are subtracted from the weights of the base when peft loads the adapter.
_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq")


@dataclass(frozen=True, eq=False)
class Adapter:
    """The matrices of an adapter, by the tensor of the model that they change."""

    kind: str  # as peft calls it: LORA
    settings: Any  # of peft
    matrices: Mapping[str, Mapping[str, TensorHeader]]  # by tensor: lora_A, lora_B
    scales: Mapping[str, float]  # by tensor: the factor of the product that is added
    whole: Mapping[str, TensorHeader]  # tensors that it puts in the place of others

    @cached_property
    def obscure(self) -> str | None:
        """Return the setting that ``ModelWeights`` does not support."""
        if self.kind != "LORA":
            return f"peft_type: {self.kind}"
        other = [name for name in self.whole if _OTHER.search(name)]
        more = [key for key in _MORE if getattr(self.settings, key, None)]
        if str(self.settings.init_lora_weights).lower().startswith(_CHANGE_THE_BASE):
            more.append("init_lora_weights")
        return next(iter([*more, *other]), None)

    def renamed(self, names: Mapping[str, str]) -> Adapter:
        """Return it for a model that calls its tensors by other ``names``."""
        parts: Iterable[Mapping[str, Any]] = (self.matrices, self.scales, self.whole)
        renamed = ({names.get(n, n): value for n, value in p.items()} for p in parts)
        return Adapter(self.kind, self.settings, *renamed)

    @property
    def transposes(self) -> bool:
        """Whether a product is transposed before it is added."""
        return bool(getattr(self.settings, "fan_in_fan_out", False))


def read_adapter(files: ModelFiles) -> Adapter:
    """Read the header of an adapter, and its settings as peft does."""
    matrices: dict[str, dict[str, TensorHeader]] = {}
    whole = {}
    kind = files.config.get("peft_type")
    if not isinstance(kind, str):
        raise MergeError(
            f"{files.folder} holds no adapter_config.json with a 'peft_type', such as "
            "LORA; write an adapter behind the '+', as it was trained"
        )
    for name, header in files.headers().items():
        name = name.removeprefix(_PREFIX)
        if match := _MATRIX.fullmatch(name):
            matrices.setdefault(f"{match[1]}.weight", {})[match[2]] = header
        else:
            whole[name] = header
    try:
        with warnings.catch_warnings(action="ignore"):  # of keys of a later peft
            settings = PeftConfig.from_pretrained(str(files.folder))
        known = matrices if kind == "LORA" else {}
        if known and not all(name.startswith(_PREFIX) for name in files.headers()):
            raise ValueError(f"not all its tensors are named {_PREFIX}...")
        scales = {name: _scale(settings, name, known[name]) for name in known}
    except Exception as error:  # noqa: BLE001 - whatever its values make of it
        raise MergeError(
            f"peft cannot use {files.folder / 'adapter_config.json'}: "
            f"{in_words(error)}; download it again"
        ) from None
    return Adapter(kind, settings, matrices, scales, whole)


def _scale(settings: Any, name: str, matrices: Mapping[str, TensorHeader]) -> float:
    """Return the factor of a product: alpha by rank, each of which has exceptions."""
    module = name.removesuffix(".weight")

    def setting(value: float, exceptions: Mapping[str, float]) -> float:
        return exceptions.get(get_pattern_key([*exceptions], module), value)

    rank = setting(settings.r, settings.rank_pattern)
    stacked = getattr(settings, "target_parameters", None)  # the ranks of experts
    if "lora_A" in matrices and matrices["lora_A"].shape[:1] != (rank,) and not stacked:
        raise ValueError(f"the rank of {name} is not {rank}")
    alpha = setting(settings.lora_alpha, settings.alpha_pattern)
    return alpha / (math.sqrt(rank) if settings.use_rslora else rank)


def check_adapter(
    adapter: Adapter, front: str, headers: Mapping[str, TensorHeader]
) -> Iterator[Finding]:
    """List what is wrong with an adapter on the model ``front`` with these headers."""
    if adapter.settings.is_prompt_learning:
        cause = f"its adapter ({adapter.kind}) changes no weights: nothing to merge"
        yield Finding("adapter-kind", "error", cause, "train a LoRA adapter")
        return
    trained_on = str(adapter.settings.base_model_name_or_path or "")
    if trained_on and not same_model(trained_on, front):
        cause = f"its adapter was trained on {trained_on}, and is merged into {front}"
        advice = "check that these are the same model"
        yield Finding("adapter-base", "warning", cause, advice)
    if adapter.obscure:
        cause = f"its adapter ({adapter.obscure}) is not looked into"
        yield Finding("adapter-unknown", "note", cause, "mergekit leaves that to peft")
        return
    unfit = [
        name
        for name in sorted([*adapter.matrices, *adapter.whole])
        if name not in headers or _shape(adapter, name) != headers[name].shape
    ]
    if unfit:
        cause = f"its adapter changes {len(unfit)} tensors that {front} does not have, "
        cause += f"or has in other shapes ({some(unfit)})"
        hint = "write the model it was trained on, with all its tokens, before the '+'"
        yield Finding("adapter-modules", "error", cause, hint)


def _shape(adapter: Adapter, name: str) -> tuple[int, ...] | None:
    """Return the shape of an adapter's product; None where its matrices do not fit."""
    if name in adapter.whole:
        return adapter.whole[name].shape
    matrices = adapter.matrices[name]
    if not {"lora_A", "lora_B"} <= matrices.keys():
        return None
    a, b = matrices["lora_A"].shape, matrices["lora_B"].shape
    if len(a) != 2 or len(b) != 2 or not a[0] == b[1] > 0:
        return None
    return (a[1], b[0]) if adapter.transposes else (b[0], a[1])


def same_model(one: str, other: str) -> bool:
    """Whether two references name the same folder, or end with the same name."""
    ours, theirs = ModelPart.parse(one), ModelPart.parse(other)
    if ours.is_folder and theirs.is_folder:
        return os.path.samefile(ours.path, theirs.path)
    return ours.names[-1].lower() == theirs.names[-1].lower()


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """Rows of a model on disk, with an adapter merged into it as mergekit does."""

    front: Mapping[str, TensorHeader]
    adapter: Adapter | None = None

    @cached_property
    def headers(self) -> Mapping[str, TensorHeader]:
        """Return the header of every tensor."""
        return {**self.front, **(self.adapter.whole if self.adapter else {})}

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Read rows of a tensor as float32, rounded as the merged model has them."""
        rows = self.headers[name].read(start, stop)
        if self.adapter is None or name not in self.adapter.matrices:
            return rows
        matrices = self.adapter.matrices[name]
        a, b = matrices["lora_A"].read_all(), matrices["lora_B"]
        if self.adapter.transposes:
            product = a[:, start:stop].T @ b.read_all().T
        else:
            product = b.read(start, stop) @ a
        rows += self.adapter.scales[name] * product
        return rows.to(self.front[name].torch_dtype).float()


def with_adapter_bases(merge: MergeConfig, *names: str) -> MergeConfig:
    """Write ``base+adapter`` for every adapter of the base model that is named alone.

    The base may have other ``names``, if it has moved. Adapters of other models stay
    alone; the check of the models reports them. So does one that gives its tokenizer:
    of ``base+adapter`` mergekit takes that of the base.
    """
    if (base := merge.get("base_model")) is None:
        return merge
    bases = (base, *names)
    adapters = [m for m in referenced_models(merge) if m != base and _adapts(m, bases)]
    whole = {adapter: f"{base}+{adapter}" for adapter in adapters}
    written = dict(map_references(merge, lambda model: whole.get(model, model)))
    if "tokenizer_source" in merge:
        written["tokenizer_source"] = merge["tokenizer_source"]
    if "source" in (tokenizer := merge.get("tokenizer") or {}):
        written["tokenizer"]["source"] = tokenizer["source"]
    return written


def _adapts(reference: str, bases: Iterable[str]) -> bool:
    if Reference.parse(reference).adapter is not None:
        return False
    try:
        files = find_model(reference, weights=False)
        if files.is_adapter:  # or a whole model, by its weights
            files = find_model(reference)
    except MergeError:
        return False
    return files.is_adapter and any(same_model(files.trained_on, b) for b in bases)
