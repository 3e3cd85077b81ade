"""mergekit's part of a configuration, checked, and its JSON Schema.

mergekit's models ignore unknown keys, so a misspelt parameter would be lost; here they
forbid them, and parameters are held against those of the method. What else mergekit
refuses, it refuses when it merges. The JSON Schema is as strict.
"""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mergekit import merge_methods
from mergekit._data import chat_templates
from mergekit.common import ModelReference
from mergekit.config import MergeConfiguration
from mergekit.merge_methods.base import BasePolicy, MergeMethodSpec, ParameterSpec
from pydantic import ValidationError

from mergekit_map.config.problems import Problem, in_words, shown, validated
from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.models.references import (
    names_coefficient,
    walk_entries,
    weight_setting,
)
from mergekit_map.types import DTYPES
from mergekit_map.utils.text import nearest

# Shares of the entries of a task vector, which mergekit asserts when it merges.
_SHARES = {"density", "gamma", "select_topk"}
PREFIX = "map_"  # of the methods of ``merging.methods``, twins of mergekit's own
_SHORTEST_TEMPLATE = 20  # letters, as mergekit has it
_LONGEST_PATH = 4096  # characters, as Linux has it


@dataclass(frozen=True)
class ModelEntry:
    """One model at its place in the configuration."""

    key: KeyPath
    model: str  # as the user wrote it
    weighted: bool  # whether the method takes a weight for it
    weight: Any  # the setting that applies to it, None where there is none
    weight_key: KeyPath  # where that setting stands


def method_spec(merge: MergeConfig) -> MergeMethodSpec:
    """Return mergekit's description of the merge method of a configuration."""
    return merge_methods.get(merge["merge_method"]).spec


def model_entries(merge: MergeConfig) -> Iterator[ModelEntry]:
    """List the models of a configuration, with the weight that applies to each."""
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


def settings_of(part: Any, parameter: str) -> Iterator[Any]:
    """Yield every value that a parameter has in a part of a configuration."""
    if isinstance(part, list):
        for item in part:
            yield from settings_of(item, parameter)
    elif isinstance(part, Mapping):
        for key, value in part.items():
            if key == parameter:
                yield from (leaf for _, leaf in leaves_of(value))
            else:
                yield from settings_of(value, parameter)


def leaves_of(setting: Any, key: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the values of a setting, its filters and gradients, each with its place."""
    if isinstance(setting, list) and setting:
        for index, item in enumerate(setting):
            yield from leaves_of(item, (*key, index))
    elif isinstance(setting, Mapping):
        if "value" in setting:
            yield from leaves_of(setting["value"], (*key, "value"))
    else:
        yield key, setting


def check_merge(merge: MergeConfig) -> list[Problem]:
    """List what mergekit would refuse or ignore in its part of a configuration."""
    problems = [*_invalid(merge), *_unknown_names(merge)]
    is_known = all(p.key not in {(), ("merge_method",)} for p in problems)
    for key, part in _mappings(merge):
        problems += _bad_models(part, key)
        if is_known:
            problems += _bad_parameters(part, key, method_spec(merge))
    if problems:  # ours know more than those of mergekit at the same place
        return [*{problem.key: problem for problem in problems}.values()]
    return [*_bad_layers(merge), *_bad_base(merge)]


def _invalid(merge: MergeConfig) -> list[Problem]:
    """Let mergekit validate; its validators raise RuntimeError without a location."""
    try:
        return validated(MergeConfiguration, merge, ())[1]
    except (RuntimeError, ValueError) as error:
        models = [p for key, part in _mappings(merge) for p in _bad_models(part, key)]
        key = ("modules",) if "modules" in merge else ()
        return models or [Problem(key, f"mergekit refuses this: {error}")]


def _mappings(part: Any, key: KeyPath = ()) -> Iterator[tuple[KeyPath, MergeConfig]]:
    """Yield the mappings of a configuration, other than of parameters and tokens."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(part, dict):
        yield key, part
        items = part.items()
    elif isinstance(part, list):
        items = enumerate(part)
    for name, value in items:
        if name not in {"parameters", "tokens"}:
            yield from _mappings(value, (*key, name))


def _bad_models(part: MergeConfig, key: KeyPath) -> Iterator[Problem]:
    if key and part.get("base_model") is not None:  # of one slice
        text = "a base model of its own has no part; write it at the top for all"
        yield Problem((*key, "base_model"), text)
    in_a_list = key != () and isinstance(key[-1], int)  # elsewhere it is for 'models'
    for name in ("base_model", *(["model"] if in_a_list else [])):
        model = part.get(name)
        is_written = isinstance(model, str) and 0 < len(model) <= _LONGEST_PATH
        if model is not None and not is_written:
            text = "a model is written as text (path, path@revision or path+lora)"
            yield Problem((*key, name), f"{text}, got {shown(model)}")
        elif model is not None:
            try:
                ModelReference.parse(model)
            except RuntimeError as error:
                yield Problem((*key, name), f"mergekit refuses this: {error}")


def _bad_parameters(
    part: MergeConfig, key: KeyPath, spec: MergeMethodSpec
) -> Iterator[Problem]:
    known = {parameter.name: parameter for parameter in spec.parameters}
    parameters = part.get("parameters")
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        place = (*key, "parameters", name)
        if name not in known:
            text = f"{spec.name!r} has no parameter {name!r}; {nearest(name, known)}"
            yield Problem(place, text)
            continue
        is_shared = known[name].scope == merge_methods.ParameterScope.SHARED
        of_model = key[-2:-1] in {("models",), ("sources",)}
        if is_shared and (of_model or (key and "normalize" in name)):
            text = "it holds for all models and layers; write it under 'parameters:'"
            yield Problem(place, f"{text} at the top")
        for leaf, one in leaves_of(value, place):
            if wrong := _wrong_value(one, known[name]):
                yield Problem(leaf, wrong)
        items = value if isinstance(value, list) else [value]
        is_all = [i.get("filter") in (None, "*") for i in items if isinstance(i, dict)]
        if name == "weight" and is_all and (not is_all[-1] or any(is_all[:-1])):
            text = "the first filter that matches counts, so the last entry must be"
            yield Problem(place, f"{text} for all other tensors: {{value: 0.5}}")


def _wrong_value(value: Any, parameter: ParameterSpec) -> str | None:
    if parameter.name == "weight" and names_coefficient(value):
        return None
    try:
        number = parameter.validate(value)
    except ValidationError as error:
        return in_words(error.errors()[0])
    if isinstance(value, bool) and isinstance(number, float):
        return f"a number was expected, got {shown(value)}"
    if isinstance(number, float) and not math.isfinite(number):
        return f"a finite number was expected, got {shown(value)}"
    if parameter.name in _SHARES and not 0 <= number <= 1:
        return f"a number from 0 to 1 was expected, got {shown(value)}"
    return None


def _unknown_names(merge: MergeConfig) -> Iterator[Problem]:
    """Refuse names that mergekit looks up late, or takes for no template at all."""
    templates = [f.name for f in importlib.resources.files(chat_templates).iterdir()]
    for key, known in {
        "merge_method": [m.spec.name for m in merge_methods.registered_methods()],
        "dtype": DTYPES,
        "out_dtype": DTYPES,
        "chat_template": ["auto", *(n[:-6] for n in templates if n.endswith(".jinja"))],
    }.items():
        name, kind = merge.get(key), key.removeprefix("out_").replace("_", " ")
        if not isinstance(name, str) or (kind == "chat template" and not name):
            continue
        is_template = "{" in name and len(name) >= _SHORTEST_TEMPLATE
        if name not in known and not (kind == "chat template" and is_template):
            offered = [name for name in known if not name.startswith(PREFIX)]
            text = f"there is no {kind} {shown(name)}; {nearest(name, offered)}"
            yield Problem((key,), text)


def _bad_layers(merge: MergeConfig) -> Iterator[Problem]:
    """Refuse ranges without a layer, which mergekit merges to less than a model."""
    for key, entry, _ in walk_entries(merge):
        start, end = map(int, entry.get("layer_range") or (0, 1))
        if not 0 <= start < end:
            text = "the first layer, from 0, and the one behind the last were expected"
            yield Problem((*key, "layer_range"), f"{text}, got [{start}, {end}]")


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
        text = f"{spec.name!r} has no base model, and would take it as one more model"
        text += " without a weight; remove 'base_model', or list it among the models"
        return [Problem(("base_model",), text)]
    if merge.get("models") and len(set(models)) < len(models):
        twice = next(m for m in models if models.count(m) > 1)
        return [Problem(("models",), f"{twice!r} stands twice; remove one of the two")]
    references = [ModelReference.parse(m) for m in models]
    if all(base is not None and r == ModelReference.parse(base) for r in references):
        text = "there is no model besides the base model; add the fine-tuned models"
        return [Problem(("models",), text)]
    return []


def merge_schema() -> dict[str, Any]:
    """Return the JSON Schema of what ``check_merge`` accepts."""
    schema: dict[str, Any] = MergeConfiguration.model_json_schema()
    definitions = schema["$defs"]
    # Models are written as text; mergekit parses it.
    definitions["ModelReference"] = {
        "type": "string",
        "description": "Hub id or folder; '@revision' or '+adapter' may follow.",
    }
    del definitions["ModelPath"]
    methods, parameters = _weighted_methods()
    for part in (schema, *definitions.values()):
        if keys := part.get("properties"):
            part["additionalProperties"] = False
            for form in keys.get("parameters", {}).get("anyOf", ()):
                form["propertyNames"] = {"enum": parameters}
    schema["properties"]["merge_method"] = {
        "description": "Any merge method of mergekit that has a weight per model.",
        "enum": [*methods, *(PREFIX + name for name in methods)],
    }
    return schema


def _weighted_methods() -> tuple[list[str], list[str]]:
    specs = [
        method.spec
        for method in merge_methods.registered_methods()
        if "weight" in {parameter.name for parameter in method.spec.input_parameters}
        and not method.spec.name.startswith(PREFIX)
    ]
    parameters = {parameter.name for spec in specs for parameter in spec.parameters}
    return [spec.name for spec in specs], sorted(parameters)
