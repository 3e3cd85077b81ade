"""The JSON Schema of a configuration, for editors."""

from __future__ import annotations

import importlib.resources
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from pydantic.json_schema import models_json_schema

from mergekit_map.config.specs import MapBlock
from mergekit_map.config.task_specs import TASK_NAME

Schema: TypeAlias = dict[str, Any]
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
    schema = _merge_schema()
    return {
        "$schema": _DIALECT,
        **schema,
        "$defs": schema["$defs"] | definitions,
        "title": "A search of mergekit-map",
        "properties": {**schema["properties"], "map": block},
        "required": [*schema["required"], "map"],
    }


def mergekit_is_known() -> bool:
    """Say whether mergekit's part is kept, so that mergekit need not be imported."""
    return _kept_part().is_file()


def _kept_part() -> Path:
    # What merging.schema says of one version of mergekit: its methods and their
    # parameters are known only once torch is imported. A test holds both equal.
    folder = Path(str(importlib.resources.files("mergekit_map"))) / "merging"
    return folder / f"mergekit-{version('mergekit')}.json"


def _merge_schema() -> Schema:
    if mergekit_is_known():
        kept: Schema = json.loads(_kept_part().read_text(encoding="utf-8"))
        return kept
    # Seconds: see above.
    from mergekit_map.merging.schema import merge_schema

    return merge_schema()
