"""The README's reference of the ``map:`` block, made from the specs themselves.

Write it anew with: python tests/readme_reference.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mergekit_map.config.specs import (
    LmEvalTask,
    MapBlock,
    PerplexityTask,
    PythonTask,
    SearchSpec,
    SelectSpec,
    TextSource,
)

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- reference: begin -->\n", "<!-- reference: end -->"
TABLES: dict[str, type[BaseModel]] = {
    "map": MapBlock,
    "map.tasks.NAME, own text": PerplexityTask,
    "map.tasks.NAME.perplexity": TextSource,
    "map.tasks.NAME, lm-evaluation-harness": LmEvalTask,
    "map.tasks.NAME, own function": PythonTask,
    "map.search": SearchSpec,
    "map.select": SelectSpec,
}


def reference() -> str:
    """Write a table per mapping of the block."""
    parts = []
    for title, model in TABLES.items():
        schema = model.model_json_schema()
        rows = "\n".join(_rows(schema))
        head = "| key | value | default | meaning |\n| --- | --- | --- | --- |"
        key, _, about = title.partition(", ")
        heading = f"`{key}`" + (f", {about}" if about else "")
        parts.append(f"**{heading}**\n\n{head}\n{rows}\n")
    return "\n".join(parts)


def in_readme(text: str) -> str:
    """Find the reference as it stands in the text of the README."""
    (found,) = re.findall(f"{re.escape(BEGIN)}(.*?){re.escape(END)}", text, re.DOTALL)
    return str(found)


def _rows(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, field in schema["properties"].items():
        about = _resolved(field, schema).get("description", "").replace("\n", " ")
        default = "required" if name in schema.get("required", ()) else _default(field)
        values = _values(field, schema).replace("|", "\\|")
        yield f"| `{name}` | {values} | {default} | {about} |"


def _resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = field.get("$ref")
    if reference is None or "description" in field:
        return field
    found: Mapping[str, Any] = schema["$defs"][reference.split("/")[-1]]
    return found


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    if default is None or isinstance(default, dict):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        return f"`[{', '.join(f'{v:g}' for v in default)}]`"
    return f"`{default}`"


def _values(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "$ref" in field:
        return "mapping" if "Backend" in field["$ref"] else "mapping, below"
    if "anyOf" in field:
        options = [o for o in field["anyOf"] if o.get("type") != "null"]
        return " or ".join(_values(option, schema) for option in options)
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    return _type(field)


def _type(field: Mapping[str, Any]) -> str:
    lowest = f" from {field['minimum']}" if "minimum" in field else ""
    if field.get("maxItems") == 2:
        return "two numbers"
    names = {"boolean": "`true`, `false`", "object": "mapping", "array": "list"}
    names |= {"integer": "whole number", "string": "text", "number": "number"}
    return names[field["type"]] + lowest


if __name__ == "__main__":
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(before + BEGIN + reference() + END + after, encoding="utf-8")
