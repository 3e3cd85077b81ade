"""mergekit's part of a configuration as a JSON Schema, as strict as our own checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from mergekit import merge_methods
from mergekit.config import MergeConfiguration

Schema: TypeAlias = dict[str, Any]


def merge_schema() -> Schema:
    """Describe what ``check_merge`` accepts, from mergekit's own models.

    Unlike these it refuses keys that mergekit would ignore, and names the methods that
    have a weight per model to search for.
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
