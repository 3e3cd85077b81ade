"""Configurations from plain mergekit ones, and the JSON Schema for editors.

The text of a plain configuration is kept, and a ``map:`` block added.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import models_json_schema

from mergekit_map.config.schema import MapBlock
from mergekit_map.config.tasks import TASK_NAME
from mergekit_map.config.template import map_block, scalar
from mergekit_map.config.yaml_file import KeyPath, Loader, YamlFile, read_yaml
from mergekit_map.errors import ConfigError
from mergekit_map.models.references import short_names, walk_entries, weight_setting


def extend_plain(path: Path, tasks: Mapping[str, str]) -> str:
    """Add a ``map:`` block below a mergekit configuration, and search its weights.

    Weights that are numbers become names, which are searched; all other text stays,
    comments included.

    Raises:
        ConfigError: it has such a block already, names no models, or cannot be
            added to.
    """
    file = read_yaml(path)
    if "map" in file.content:
        raise ConfigError(
            f"{file.locate(('map',))}: this file has a 'map:' block already; it can be "
            "searched as it is"
        )
    try:
        models = [str(entry["model"]) for _, entry, _ in walk_entries(file.merge)]
    except (AttributeError, KeyError, TypeError):
        models = []
    tuned = [m for m in dict.fromkeys(models) if m != file.content.get("base_model")]
    if not tuned:
        raise ConfigError(
            f"{path}: 'models:' with a 'model:' each was expected, as mergekit-yaml "
            "has it; got none"
        )
    text, comments = _with_names(file, short_names(tuned))
    lines = [*comments, *map_block(tuned, tasks)]
    extended = text.rstrip("\n") + "\n\n" + "".join(f"{line}\n" for line in lines)
    if not _is_extended(extended, text):
        raise ConfigError(
            f"{path}: lines cannot be added below this; write it as a block of "
            "'key: value' lines first, or add these yourself:\n\n" + "\n".join(lines)
        )
    return extended


def _with_names(file: YamlFile, labels: Mapping[str, str]) -> tuple[str, list[str]]:
    """Replace weights that are numbers by names, and list these."""
    root, text = yaml.compose(file.text, Loader=Loader), file.text
    found: dict[tuple[int, int], tuple[str, Any]] = {}  # an alias stands once
    for key, entry, _ in walk_entries(file.merge):
        setting = weight_setting(entry, key)
        label = labels.get(str(entry["model"]))
        if setting is not None and label is not None and _is_number(setting[1]):
            node = _node(root, setting[0])
            place = node.start_mark.index, node.end_mark.index
            found.setdefault(place, (label, setting[1]))
    was: list[str] = []
    for (start, stop), (name, value) in sorted(found.items(), reverse=True):
        text = text[:start] + scalar(name) + text[stop:]
        was.insert(0, f"{name} (was {value})")
    comments = [f"# Searched by name: the weights of {', '.join(was)}"] if was else []
    if isinstance(weight := weight_setting(file.merge, ()), tuple) and not was:
        comments.append(
            f"# 'parameters: weight: {weight[1]}' above holds for all models: remove "
            "it, so that theirs can be searched"
        )
    return text, comments


def _is_number(weight: Any) -> bool:
    try:
        float(weight)  # what YAML reads as text, such as 3e-1, is a number to mergekit
    except (TypeError, ValueError):
        return False
    return True


def _node(root: Any, key: KeyPath) -> yaml.Node:
    node = root
    for part in key:
        if isinstance(node, yaml.MappingNode):
            node = next(value for name, value in node.value if name.value == part)
        else:
            node = node.value[part]
    found: yaml.Node = node
    return found


def _is_extended(extended: str, text: str) -> bool:
    try:
        content = yaml.load(extended, Loader=Loader)
    except (yaml.YAMLError, ValueError):
        return False
    block = content.pop("map", None) if isinstance(content, dict) else None
    return isinstance(block, dict) and content == yaml.load(text, Loader=Loader)


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Return the schema of a configuration: mergekit's part and the ``map:`` block.

    Reading a configuration checks what a schema cannot express: files, models, names of
    tasks, keys that exclude one another.
    """
    references, ours = models_json_schema([(MapBlock, "validation")])
    (block,) = references.values()
    definitions = ours["$defs"]
    names = {"pattern": f"^(?:{TASK_NAME.pattern})$"}
    definitions["MapBlock"]["properties"]["tasks"]["propertyNames"] = names
    # Here, as it imports torch: the methods of mergekit and their parameters.
    from mergekit_map.merging.validation import merge_schema

    schema = merge_schema()
    return {
        "$schema": _DIALECT,
        **schema,
        "$defs": schema["$defs"] | definitions,
        "title": "A search of mergekit-map",
        "properties": {**schema["properties"], "map": block},
        "required": [*schema["required"], "map"],
    }
