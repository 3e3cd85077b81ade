"""The JSON Schema of a configuration, for editors."""

from __future__ import annotations

from pydantic.json_schema import models_json_schema

from mergekit_map.config.parsing import TASK_NAME
from mergekit_map.config.specs import MapBlock
from mergekit_map.merging.schema import Schema, merge_schema

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> Schema:
    """Describe a whole configuration: mergekit's part, and the ``map:`` block.

    What a schema cannot say is checked when the configuration is read: files, models,
    names of tasks, keys that exclude one another.
    """
    references, ours = models_json_schema([(MapBlock, "validation")])
    (block,) = references.values()
    definitions = ours["$defs"]
    names = {"pattern": f"^(?:{TASK_NAME.pattern})$"}
    definitions["MapBlock"]["properties"]["tasks"]["propertyNames"] = names
    schema = merge_schema()
    return {
        "$schema": _DIALECT,
        **schema,
        "$defs": schema["$defs"] | definitions,
        "title": "A search of mergekit-map",
        "properties": {**schema["properties"], "map": block},
        "required": [*schema["required"], "map"],
    }
