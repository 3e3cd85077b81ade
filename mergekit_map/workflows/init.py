"""Configurations from plain mergekit ones, and the JSON Schema for editors."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from mergekit_map.config.schema import MapBlock
from mergekit_map.config.tasks import TASK_NAME
from mergekit_map.config.template import Tasks, hints, map_block
from mergekit_map.config.yaml_file import read_yaml, yaml_text
from mergekit_map.errors import ConfigError
from mergekit_map.models.references import short_names, walk_entries, weight_setting


def extend_plain(path: Path, tasks: Tasks) -> str:
    """Add a ``map:`` block to a mergekit configuration, and search its weights.

    Weights that are numbers become names, which are searched; all else stays as it is.

    Raises:
        ConfigError: it has such a block already, or names no models.
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
    merge, names = copy.deepcopy(file.merge), short_names(tuned)
    was = []
    for key, entry, _ in walk_entries(merge):
        name, setting = names.get(str(entry["model"])), weight_setting(entry, key)
        weight = setting[1] if setting else None
        if name is not None and isinstance(weight, int | float):
            entry["parameters"]["weight"] = name
            was.append(f"{name} (was {weight})")
    comments = [f"Searched by name: the weights of {', '.join(was)}"] if was else []
    if (shared := weight_setting(merge, ())) is not None and not was:
        comments.append(
            f"'parameters: weight: {shared[1]}' below holds for all models: remove it, "
            "so that theirs can be searched"
        )
    content = {**merge, "map": map_block(tuned, tasks)}
    return yaml_text([content], [*comments, *hints(tasks)])


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
