"""The models of a merge with their weights, and mergekit's schema checked key by key.

mergekit's models ignore unknown keys, so a misspelt parameter would be lost; here each
key is held against mergekit's own ``model_fields`` and the method's own parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mergekit import merge_methods
from mergekit.common import ModelReference
from mergekit.config import (
    ConditionalParameter,
    InputModelDefinition,
    InputSliceDefinition,
    MergeConfiguration,
    OutputModuleDefinition,
    OutputSliceDefinition,
)
from mergekit.merge_methods.base import BasePolicy, MergeMethodSpec
from mergekit.tokenizer.config import TokenizerConfig
from pydantic import BaseModel, ValidationError

from mergekit_map.config.parsing import Problem
from mergekit_map.config.wrong_values import mistakes, shown
from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.errors import nearest
from mergekit_map.merging.key_values import value_problems, wrong_model
from mergekit_map.merging.parameter_values import parameter_problems
from mergekit_map.models.references import walk_entries, weight_setting


@dataclass(frozen=True)
class ModelEntry:
    """One model where it stands in the configuration."""

    key: KeyPath
    model: str  # as the user wrote it
    weighted: bool  # whether the method takes a weight for it
    weight: Any  # the setting that applies to it, None where there is none
    weight_key: KeyPath  # where that setting stands


def method_spec(merge: MergeConfig) -> MergeMethodSpec:
    """Look up what mergekit says of the merge method of a configuration."""
    return merge_methods.get(merge["merge_method"]).spec


def model_entries(merge: MergeConfig) -> Iterator[ModelEntry]:
    """Walk the models of a configuration, with the weight that applies to each."""
    default = weight_setting(merge, ())
    base_ignored = method_spec(merge).contract.base == BasePolicy.IGNORED
    for key, entry, outer in walk_entries(merge):
        setting = weight_setting(entry, key) or outer or default
        is_base = str(entry["model"]) == str(merge.get("base_model"))
        yield ModelEntry(
            key=key,
            model=str(entry["model"]),
            weighted=base_ignored or not is_base,
            weight=setting[1] if setting else None,
            weight_key=setting[0] if setting else (),
        )


def check_merge(merge: MergeConfig) -> list[Problem]:
    """List what is wrong with the mergekit part of a configuration.

    Empty means that mergekit takes it and will use every key of it.
    """
    method = merge.get("merge_method")
    known = [m.spec.name for m in merge_methods.registered_methods()]
    if method not in known:
        text = (
            "the key 'merge_method' is required and missing; add it"
            if method is None
            else f"there is no merge method {shown(method)}; {_near(method, known)}"
        )
        problems = [Problem(("merge_method",) if "merge_method" in merge else (), text)]
        return [*problems, *_unknown_keys(merge, MergeConfiguration, (), None)]
    problems = _unknown_keys(merge, MergeConfiguration, (), method_spec(merge))
    problems += value_problems(merge)
    problems += parameter_problems(merge, method_spec(merge))
    problems += _bad_references(merge)
    problems += _invalid(merge) if not problems else []
    return problems or _bad_base(merge)


def _near(name: Any, known: list[str]) -> str:
    return nearest(name if isinstance(name, str) else "", known)


_PARTS = {"models": InputModelDefinition, "slices": OutputSliceDefinition}
_MOST_MODELS = 100
_LISTS: dict[type[BaseModel], dict[str, type[BaseModel]]] = {  # by the key of each
    MergeConfiguration: _PARTS,
    OutputModuleDefinition: _PARTS,
    OutputSliceDefinition: {"sources": InputSliceDefinition},
}


def _unknown_keys(
    part: Any, model: type[BaseModel], key: KeyPath, spec: MergeMethodSpec | None
) -> list[Problem]:
    if not isinstance(part, dict):
        return []  # of the wrong type, which mergekit's own validation reports
    fields = [*model.model_fields, *(["map"] if key == () else [])]
    problems = [
        Problem((*key, name), f"unknown key {name!r}; {nearest(str(name), fields)}")
        for name in part
        if name not in fields
    ]
    if spec is not None:
        problems += _unknown_parameters(part.get("parameters"), key, spec)
    for name, child in _LISTS.get(model, {}).items():
        values = part.get(name)
        for index, value in enumerate(values if isinstance(values, list) else ()):
            problems += _unknown_keys(value, child, (*key, name, index), spec)
    if model is MergeConfiguration:
        place: KeyPath = (*key, "tokenizer")
        problems += _unknown_keys(part.get("tokenizer"), TokenizerConfig, place, spec)
        modules = part.get("modules")
        for name, value in modules.items() if isinstance(modules, dict) else ():
            place = (*key, "modules", name)
            problems += _unknown_keys(value, OutputModuleDefinition, place, spec)
    return problems


def _unknown_parameters(
    parameters: Any, key: KeyPath, spec: MergeMethodSpec
) -> list[Problem]:
    if not isinstance(parameters, dict):
        return []
    known, problems = [p.name for p in spec.parameters], []
    for name, setting in parameters.items():
        place = (*key, "parameters", name)
        if name not in known:
            text = f"{spec.name!r} has no parameter {name!r}; {nearest(name, known)}"
            problems.append(Problem(place, text))
        for index, item in enumerate(setting if isinstance(setting, list) else ()):
            problems += _unknown_keys(item, ConditionalParameter, (*place, index), None)
        problems += _unknown_keys(setting, ConditionalParameter, place, None)
    return problems


def _bad_references(merge: MergeConfig) -> list[Problem]:
    problems = []
    places: list[tuple[KeyPath, Any]] = [(("base_model",), merge.get("base_model"))]
    try:
        places += [
            ((*k, "model"), entry.get("model")) for k, entry, _ in walk_entries(merge)
        ]
    except (AttributeError, KeyError, TypeError):
        return []  # malformed; mergekit's own validation says where
    for key, model in places:
        if model is None:
            continue
        if text := wrong_model(model):
            problems.append(Problem(key, text))
    return problems


def _invalid(merge: MergeConfig) -> list[Problem]:
    """Let mergekit validate; its validators raise RuntimeError without a location."""
    try:
        MergeConfiguration.model_validate(
            {k: v for k, v in merge.items() if k != "map"}
        )
    except ValidationError as error:
        found = mistakes(error.errors(), merge)
        return [Problem(place, text) for place, text in found.items()]
    except (RuntimeError, ValueError) as error:
        return [Problem((), f"mergekit refuses this: {error}")]
    return []


def _bad_base(merge: MergeConfig) -> list[Problem]:
    spec = method_spec(merge)
    base = merge.get("base_model")
    if base is None and spec.contract.base == BasePolicy.REQUIRED:
        text = (
            f"{spec.name!r} merges differences to a base model: add 'base_model:' with "
            "the model that the others were fine-tuned from"
        )
        return [Problem((), text)]
    models = [str(entry["model"]) for _, entry, _ in walk_entries(merge)]
    if spec.contract.base == BasePolicy.IGNORED and base and str(base) not in models:
        text = (
            f"{spec.name!r} has no use for a base model and would take it as one more "
            "model without a weight; remove 'base_model', or list it among the models"
        )
        return [Problem(("base_model",), text)]
    if len(set(models)) > _MOST_MODELS:
        text = (
            f"{len(set(models))} models, at most {_MOST_MODELS} can be merged: each is "
            "read, compared with the base and held; list fewer"
        )
        return [Problem((next(k for k in _PARTS if k in merge),), text)]
    if "models" in merge and len(set(models)) < len(models):
        twice = next(m for m in models if models.count(m) > 1)
        return [Problem(("models",), f"{twice!r} stands twice; remove one of the two")]
    references = [ModelReference.parse(m) for m in models]
    if all(base is not None and r == ModelReference.parse(base) for r in references):
        text = "there is no model besides the base model; add the fine-tuned models"
        return [Problem(("models",), text)]
    return []
