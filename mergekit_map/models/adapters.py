"""LoRA adapters: their tensors, their fit to a base model, and their base models.

mergekit expects ``base+adapter``. An adapter that a configuration names alone gets the
base model that its own adapter_config.json names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from peft.utils.other import get_pattern_key
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from mergekit_map.config.problems import in_words
from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.models.facts import Finding, some
from mergekit_map.models.files import ModelFiles, Settings, TensorHeader, find_model
from mergekit_map.models.references import (
    ModelPart,
    Reference,
    map_references,
    referenced_models,
)

_PREFIX = "base_model.model."
_MATRIX = re.compile(r"(.+)\.(lora_A|lora_B|lora_magnitude_vector)(?:\.weight)?")

_OTHER = re.compile(r"\.(lora_|token_adapter)")  # what belongs to rarer settings

# Kinds of adapters that are no change of the weights.
_PROMPTS = ("PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "MULTITASK_PROMPT_TUNING")
# Settings of which peft makes more than the product of two matrices.
_MORE = (
    "alora_invocation_tokens",
    "layer_replication",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
    "use_qalora",
)

_ADVICE = "write the model it was trained on in front of the '+'"


def _compiles(pattern: str) -> str:
    try:
        re.compile(rf"(.*\.)?({pattern})$")  # as peft matches names of modules
    except re.error as error:
        raise ValueError(f"is no regular expression ({error})") from None
    return pattern


_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Pattern = Annotated[str, AfterValidator(_compiles)]


class _LoraSettings(BaseModel):
    """The settings that matter for merging; the defaults are those of peft."""

    model_config = ConfigDict(strict=True)

    peft_type: Literal["LORA"]
    r: int = 8
    rank_pattern: dict[_Pattern, int] | None = None
    lora_alpha: _Finite = 8
    alpha_pattern: dict[_Pattern, _Finite] | None = None
    target_modules: list[str] | _Pattern | None = None
    modules_to_save: list[str] | None = None
    layers_to_transform: list[int] | int | None = None
    fan_in_fan_out: bool = False
    use_dora: bool = False
    use_rslora: bool = False
    bias: str = "none"
    base_model_name_or_path: str | None = None


@dataclass(frozen=True, eq=False)
class Adapter:
    """The matrices of an adapter, by the tensor of the model that they change."""

    settings: Settings  # adapter_config.json, defaults filled in
    matrices: Mapping[str, Mapping[str, TensorHeader]]  # by tensor: lora_A, lora_B, ...
    whole: Mapping[str, TensorHeader]  # tensors that it puts in the place of others

    @cached_property
    def obscure(self) -> str | None:
        """Return the setting that ``AdaptedWeights`` does not support."""
        if self.settings.get("peft_type", "LORA") != "LORA":
            return f"peft_type: {self.settings['peft_type']}"
        other = [name for name in self.whole if _OTHER.search(name)]
        more = [key for key in _MORE if self.settings.get(key)]
        if self.settings.get("use_dora") and self.settings.get("fan_in_fan_out"):
            more.append("use_dora with fan_in_fan_out")
        return next(iter([*more, *other]), None)

    @property
    def is_product(self) -> bool:
        """Whether it only adds the product of two matrices to each tensor."""
        return not (self.obscure or self.whole or self.settings.get("use_dora"))

    def scale(self, name: str) -> float:
        """Return the factor of the product that is added to a tensor."""
        rank = self.matrices[name]["lora_A"].shape[0]
        alpha = self.setting("lora_alpha", "alpha_pattern", name)
        return alpha / (math.sqrt(rank) if self.settings.get("use_rslora") else rank)

    def setting(self, key: str, exceptions: str, name: str) -> float:
        """Return the rank or alpha for a tensor; peft's default is 8 for both."""
        patterns: Mapping[str, float] = self.settings.get(exceptions) or {}
        pattern = get_pattern_key([*patterns], name.removesuffix(".weight"))
        return patterns.get(pattern, self.settings.get(key, 8))


def read_adapter(files: ModelFiles) -> Adapter:
    """Read the header of an adapter.

    Raises:
        MergeError: its weights are missing, damaged or pickled, or its settings wrong.
    """
    settings = _read_settings(files)
    matrices: dict[str, dict[str, TensorHeader]] = {}
    whole = {}
    headers = files.headers()
    if codes := [name for name, header in headers.items() if not header.is_float]:
        raise MergeError(
            f"{files.folder} holds integers where weights are to be ({some(codes)}), "
            "which cannot be added up; take the adapter as it was trained"
        )
    for name, header in headers.items():
        name = name.removeprefix(_PREFIX)
        if match := _MATRIX.fullmatch(name):
            matrices.setdefault(f"{match[1]}.weight", {})[match[2]] = header
        else:
            whole[name] = header
    return Adapter(settings, matrices, whole)


def _read_settings(files: ModelFiles) -> Settings:
    kind = files.config.get("peft_type")
    if isinstance(kind, str) and kind != "LORA":
        return files.config
    try:
        checked = _LoraSettings.model_validate(files.config)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise MergeError(
            f"{files.folder / 'adapter_config.json'} is damaged at {place!r}: "
            f"{in_words(first)}; download it again"
        ) from None
    return {**files.config, **checked.model_dump()}


def check_adapter(
    adapter: Adapter, front: str, headers: Mapping[str, TensorHeader]
) -> Iterator[Finding]:
    """List what is wrong with an adapter on the model ``front`` with these headers."""
    kind = adapter.settings.get("peft_type")
    if kind in _PROMPTS:
        cause = f"its adapter ({kind}) changes no weights, so there is nothing to merge"
        yield Finding("adapter-kind", "error", cause, "train a LoRA adapter")
        return
    trained_on = str(adapter.settings.get("base_model_name_or_path") or "")
    if trained_on and not same_model(trained_on, front):
        cause = f"its adapter was trained on {trained_on}, but stands behind {front}"
        yield Finding("adapter-base", "warning", cause, _ADVICE)
    if adapter.obscure:
        cause = f"its adapter ({adapter.obscure}) is not looked into"
        yield Finding("adapter-unknown", "note", cause, "mergekit leaves that to peft")
        return
    changed = [*adapter.matrices, *adapter.whole]
    lost = sorted(name for name in changed if name not in headers)
    if lost:
        cause = f"its adapter changes {len(lost)} tensors that {front} does not have "
        yield Finding("adapter-modules", "error", f"{cause}({some(lost)})", _ADVICE)
        return
    for name in sorted(changed):
        shape = _shape(adapter, name)
        if shape != headers[name].shape:
            got = f"shape {list(shape)}" if shape else "matrices that do not fit"
            cause = f"what its adapter adds to {name} has {got}, and {front} has "
            cause += f"{list(headers[name].shape)} there"
            yield Finding("adapter-shapes", "error", cause, _ADVICE)
            return


def _shape(adapter: Adapter, name: str) -> tuple[int, ...] | None:
    """Return the shape of an adapter's product; None where its matrices do not fit."""
    if name in adapter.whole:
        return adapter.whole[name].shape
    matrices = adapter.matrices[name]
    if not {"lora_A", "lora_B"} <= matrices.keys():
        return None
    a, b = matrices["lora_A"].shape, matrices["lora_B"].shape
    rank = adapter.setting("r", "rank_pattern", name)
    if len(a) != 2 or len(b) != 2 or not a[0] == b[1] == rank > 0:
        return None
    return (a[1], b[0]) if adapter.settings.get("fan_in_fan_out") else (b[0], a[1])


def same_model(one: str, other: str) -> bool:
    """Whether two references name the same folder, or end with the same name."""
    if Path(one).is_dir() and Path(other).is_dir():
        return Path(one).resolve() == Path(other).resolve()
    ours, theirs = (ModelPart.parse(text).names[-1] for text in (one, other))
    return ours.lower() == theirs.lower()


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
        if self.adapter.settings.get("fan_in_fan_out"):
            product = a[:, start:stop].T @ b.read_all().T
        else:
            product = b.read(start, stop) @ a
        change = self.adapter.scale(name) * product
        dtype = self.front[name].torch_dtype
        if "lora_magnitude_vector" not in matrices:
            return (rows + change.to(dtype).float()).to(dtype).float()
        turned = rows + change  # DoRA: the sum, each row brought to a learned length
        length: Tensor = turned.norm(dim=1, keepdim=True)
        wanted = matrices["lora_magnitude_vector"].read(start, stop)
        return (turned * wanted / length).to(dtype).float()


_REPOSITORY = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


def with_adapter_bases(
    merge: MergeConfig, directory: Path
) -> tuple[MergeConfig, dict[str, Finding]]:
    """Write ``base+adapter`` for every adapter that is named alone.

    The base is that of the merge where both have the same name, or else the one that
    the adapter names: a folder relative to ``directory``, or a repository. An adapter
    without a base stays as it is; the check of the models reports it.

    Returns:
        The configuration, and a message for each model that was changed.
    """
    front = str(merge["base_model"]) if merge.get("base_model") else None
    bases = {
        reference: base
        for reference in referenced_models(merge)
        if reference != front and (base := _base_of(reference, front, directory))
    }
    whole = {adapter: f"{base}+{adapter}" for adapter, base in bases.items()}
    said = {}
    for adapter, base in bases.items():
        cause = (
            f"{ModelPart.parse(adapter).names[-1]} is a LoRA adapter; it is applied to "
            f"the base that its adapter_config.json names: {base}"
        )
        said[whole[adapter]] = Finding("adapter-filled-in", "note", cause)
    return map_references(merge, lambda model: whole.get(model, model)), said


def _base_of(reference: str, front: str | None, directory: Path) -> str | None:
    if Reference.parse(reference).adapter is not None:
        return None
    try:
        files = find_model(reference, weights=False)
    except MergeError:
        return None
    named = files.config.get("base_model_name_or_path")
    if not files.is_adapter or not isinstance(named, str) or not named:
        return None
    if front is not None and same_model(named, front):
        return front
    if (directory / named).is_dir():
        folder = str((directory / named).resolve())
        return None if set("+@") & set(folder) else folder
    if not _REPOSITORY.fullmatch(named):
        return None
    revision = files.config.get("revision")
    return f"{named}@{revision}" if revision else named
