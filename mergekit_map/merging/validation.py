"""mergekit's part of a configuration, checked key by key, and its JSON Schema.

mergekit's models ignore unknown keys, so a misspelt parameter would be lost. Here each
key is checked against mergekit's own ``model_fields`` and the method's parameters, and
every number against its range. mergekit reads most values only when it merges: a
density of -1 then fails an assertion, one of NaN merges to zeros, and no error names
the key. The JSON Schema is as strict as these checks.
"""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

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
from mergekit.merge_methods.base import BasePolicy, MergeMethodSpec, ParameterSpec
from mergekit.tokenizer.config import TokenizerConfig
from pydantic import BaseModel, ValidationError

from mergekit_map.config import maxima
from mergekit_map.config.problems import Problem, in_words, mistakes, shown
from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.errors import nearest
from mergekit_map.models.references import walk_entries, weight_setting

DTYPES = ("bfloat16", "float16", "float32", "float64")
_MOST_PADDING = 1 << 16  # rows of an embedding
_LONGEST_MODEL = 4096  # characters; no path is longer


def value_problems(merge: MergeConfig) -> list[Problem]:
    """List the values of single keys that make merging impossible."""
    return [
        *_wrong_dtypes(merge),
        *_wrong_tokenizer(merge),
        *_wrong_template(merge),
        *_empty_modules(merge),
        *_wrong_layers(merge),
    ]


def wrong_model(model: Any) -> str | None:
    """Return why a value cannot name a model; None where it can."""
    if not isinstance(model, str):
        text = "a model is written as text (path, path@revision or path+lora), got "
        return f"{text}{shown(model)}"
    if not model.strip() or len(model) > _LONGEST_MODEL:
        return f"a model is a folder or an id of the Hub, got {shown(model)}"
    if model.count("+") > 1 or any(p.count("@") > 1 for p in model.split("+")):
        return (
            f"mergekit reads '+' as base+lora and '@' as a revision, so {shown(model)} "
            "cannot be a path; rename the folder or use a symbolic link"
        )
    if not all(part.partition("@")[0] for part in model.split("+")):
        return f"a model before and behind '+' was expected, got {shown(model)}"
    return None


def _wrong_dtypes(merge: MergeConfig) -> Iterator[Problem]:
    for name in ("dtype", "out_dtype"):
        dtype = merge.get(name)
        if dtype is None or (
            isinstance(dtype, str) and dtype.removeprefix("torch.") in DTYPES
        ):
            continue
        text = f"there is no dtype {shown(dtype)} of merges; "
        hint = nearest(dtype, DTYPES) if isinstance(dtype, str) else nearest("", DTYPES)
        yield Problem((name,), text + hint)


def _wrong_tokenizer(merge: MergeConfig) -> Iterator[Problem]:
    yield from _wrong_source(merge, ("tokenizer_source",))
    tokenizer = merge.get("tokenizer")
    if not isinstance(tokenizer, dict):
        return
    yield from _wrong_source(tokenizer, ("tokenizer", "source"))
    multiple = tokenizer.get("pad_to_multiple_of")
    if type(multiple) is int and not 1 <= multiple <= _MOST_PADDING:
        text = f"a whole number from 1 to {_MOST_PADDING} was expected, got {multiple}"
        yield Problem(("tokenizer", "pad_to_multiple_of"), text)
    tokens = tokenizer.get("tokens")
    for token, kept in tokens.items() if isinstance(tokens, dict) else ():
        if isinstance(kept, dict):
            yield from _wrong_source(kept, ("tokenizer", "tokens", token, "source"))


def _wrong_source(part: MergeConfig, key: KeyPath) -> Iterator[Problem]:
    source = part.get(str(key[-1]))
    if isinstance(source, str) and (text := wrong_model(source)):
        yield Problem(key, text)


def _wrong_template(merge: MergeConfig) -> Iterator[Problem]:
    template = merge.get("chat_template")
    if not isinstance(template, str) or "{" in template or "\n" in template:
        return
    folder = Path(str(importlib.resources.files("mergekit"))) / "_data/chat_templates"
    known = ["auto", *(path.stem for path in folder.glob("*.jinja"))]
    if template not in known:
        text = (
            f"there is no chat template {shown(template)}; {nearest(template, known)}; "
            "a template of your own has braces"
        )
        yield Problem(("chat_template",), text)


def _empty_modules(merge: MergeConfig) -> Iterator[Problem]:
    modules = merge.get("modules")
    for name, module in modules.items() if isinstance(modules, dict) else ():
        given = module if isinstance(module, dict) else {}
        if bool(given.get("models")) == bool(given.get("slices")):
            text = "either 'models' or 'slices' was expected, that are merged into it"
            yield Problem(("modules", name), text)


def _wrong_layers(merge: MergeConfig) -> Iterator[Problem]:
    try:
        ranges = [
            ((*key, "layer_range"), entry["layer_range"])
            for key, entry, _ in walk_entries(merge)
            if "layer_range" in entry
        ]
    except (AttributeError, KeyError, TypeError):
        return  # malformed; mergekit's own validation says where
    for key, given in ranges:
        whole = isinstance(given, list) and [type(end) for end in given] == [int, int]
        if not whole or not 0 <= given[0] < given[1] <= maxima.LAYERS.most:
            text = (
                "two whole numbers were expected, the first layer, from 0, and the one "
                f"behind the last, up to {maxima.LAYERS.most}, got {shown(given)}"
            )
            yield Problem(key, text)


_Leaf = tuple[KeyPath, Any]

# Shares of the entries of a task vector: what is kept, cut off, or spread around.
_SHARES = {"density", "gamma", "select_topk"}
_POSITIVE = {"density", "select_topk", "eps", "tol"}
_LARGEST = 1e6  # of any other number; merges are noise long before
_MOST_STEPS = 10_000  # of a method that iterates


def parameter_problems(merge: MergeConfig, spec: MergeMethodSpec) -> list[Problem]:
    """List the values of parameters that a method cannot merge with."""
    known = {parameter.name: parameter for parameter in spec.parameters}
    return [
        Problem(place, text)
        for key, parameters in _blocks(merge, ())
        for name, setting in parameters.items()
        if name in known
        for place, text in _wrong(setting, (*key, name), known[name])
    ]


def _blocks(part: Any, key: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the mappings of parameters, at any depth of a configuration."""
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from _blocks(item, (*key, index))
    elif isinstance(part, dict):
        for name, value in part.items():
            if name != "parameters":
                yield from _blocks(value, (*key, name))
            elif isinstance(value, dict):
                yield (*key, name), value


def _wrong(
    setting: Any, key: KeyPath, parameter: ParameterSpec
) -> Iterator[tuple[KeyPath, str]]:
    for place, value in _leaves(setting, key):
        if value == []:
            yield place, "this list is empty; write a value, or remove the key"
        elif problem := _problem(value, parameter):
            yield place, problem


def _leaves(setting: Any, key: KeyPath) -> Iterator[_Leaf]:
    if isinstance(setting, dict):
        if "value" in setting:
            yield from _leaves(setting["value"], (*key, "value"))
    elif isinstance(setting, list) and setting:
        for index, item in enumerate(setting):
            if not isinstance(item, list):  # mergekit says where lists may be
                yield from _leaves(item, (*key, index))
    else:
        yield key, setting


def _problem(value: Any, parameter: ParameterSpec) -> str | None:
    if parameter.value_type is float:
        return _wrong_number(value, parameter.name)
    try:
        read = parameter.validate(value)
    except ValidationError as error:
        return in_words(error.errors()[0])
    if type(read) is int and not 1 <= read <= _MOST_STEPS:
        return f"a whole number from 1 to {_MOST_STEPS} was expected, got {read}"
    return None


def _wrong_number(value: Any, name: str) -> str | None:
    number = _number(value)
    if name == "weight" and isinstance(value, str) and number is None:
        return None if value.strip() else "a number or a name was expected, got ''"
    low, high = (0.0, 1.0) if name in _SHARES else (-_LARGEST, _LARGEST)
    low = 0.0 if name in _POSITIVE else low
    fits = number is not None and low <= number <= high
    if fits and not (name in _POSITIVE and not number):
        return None
    above = f"above {low:g} and up to" if name in _POSITIVE else f"from {low:g} to"
    return f"a number {above} {high:g} was expected, got {shown(value)}"


def _number(value: Any) -> float | None:
    """Read a number as mergekit does, which also accepts the text ``1e-3``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    named = isinstance(value, str) and not math.isfinite(number)
    return None if named else number


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


def check_merge(merge: MergeConfig) -> list[Problem]:
    """List the problems of the mergekit part of a configuration.

    Empty means that mergekit accepts it and uses every key of it.
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
    """Return the errors of mergekit's validation, some of which have no location."""
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


Schema: TypeAlias = dict[str, Any]


def merge_schema() -> Schema:
    """Return the JSON Schema of what ``check_merge`` accepts.

    Unlike mergekit's own models it refuses keys that mergekit ignores, and it lists
    only methods that have a weight per model to search for.
    """
    schema: Schema = MergeConfiguration.model_json_schema()
    definitions = schema["$defs"]
    # Models are written as text; mergekit parses it.
    definitions["ModelReference"] = {
        "type": "string",
        "description": "Hub id or folder; '@revision' or '+adapter' may follow.",
    }
    del definitions["ModelPath"]
    for part in (schema, *definitions.values()):
        if "properties" in part:
            part["additionalProperties"] = False
    methods = _weighted_methods()
    schema["properties"]["merge_method"] = {
        "description": "Any merge method of mergekit that has a weight per model.",
        "enum": [*methods, *(f"map_{name}" for name in methods)],
    }
    names = {name for known in methods.values() for name in known}
    for parameters in _parameters(schema):
        parameters["propertyNames"] = {"enum": sorted(names)}
    return schema


def _weighted_methods() -> dict[str, list[str]]:
    specs = [method.spec for method in merge_methods.registered_methods()]
    return {
        spec.name: [parameter.name for parameter in spec.parameters]
        for spec in specs
        if "weight" in {parameter.name for parameter in spec.input_parameters}
        and not spec.name.startswith("map_")
    }


def _parameters(schema: Schema) -> Iterator[Schema]:
    for part in (schema, *schema["$defs"].values()):
        for option in part.get("properties", {}).get("parameters", {}).get("anyOf", ()):
            if option.get("type") == "object":
                yield option
