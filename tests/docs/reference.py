"""What the pages have from the code and from kept results, made from these themselves.

Write it anew with: python tests/docs/reference.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from figures import FIGURES
from pages import PAGES
from pydantic import BaseModel, TypeAdapter

from mergekit_map.config.engines import EngineSpec
from mergekit_map.config.presets import PRESETS, PresetTask
from mergekit_map.config.schema import MapBlock, SearchSpec, SelectSpec
from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, PythonTask, TextSource
from mergekit_map.results.front import Front
from mergekit_map.results.log import EVALUATION
from mergekit_map.results.run_folder import Manifest
from mergekit_map.results.surrogate_file import Surrogates

_MADE = re.compile(
    r"(<!-- made: (?P<name>[\w-]+) -->)(?P<text>.*?)(<!-- end -->)", re.S
)
CONFIGURATION: dict[str, type[BaseModel]] = {
    "map": MapBlock,
    "map.tasks.NAME, own text": PerplexityTask,
    "map.tasks.NAME.perplexity": TextSource,
    "map.tasks.NAME, benchmark by name": PresetTask,
    "map.tasks.NAME, lm-evaluation-harness": LmEvalTask,
    "map.tasks.NAME, own function": PythonTask,
    "map.engine": EngineSpec,
    "map.search": SearchSpec,
    "map.select": SelectSpec,
}
FORMS: dict[str, TypeAdapter[Any]] = {
    "front.json": TypeAdapter(Front),
    "evaluations.jsonl, a line": EVALUATION,
    "surrogates.json": TypeAdapter(Surrogates),
    "manifest.json": TypeAdapter(Manifest),
}


def made_parts(text: str) -> dict[str, str]:
    """Find what was made as it stands in a page, by name."""
    return {part["name"]: part["text"] for part in _MADE.finditer(text)}


def with_parts(text: str) -> str:
    """Make every part of a page anew."""

    def make(part: re.Match[str]) -> str:
        made = PARTS[part["name"]]()
        lines = "\n" if "\n" in made else ""
        return f"{part[1]}{lines}{made}{part[4]}"

    return _MADE.sub(make, text)


def reference() -> str:
    """Write a table per mapping of the ``map:`` block."""
    parts = []
    for title, model in CONFIGURATION.items():
        schema = model.model_json_schema()
        rows = "\n".join(_rows(schema))
        head = "| key | value | default | meaning |\n| --- | --- | --- | --- |"
        parts.append(f"**{_title(title)}**\n\n{head}\n{rows}\n")
    return "\n".join(parts)


def presets() -> str:
    """Write a row per benchmark that is known by name."""
    rows = [
        "| preset | metric | filter | examples | documents |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for name, preset in PRESETS.items():
        kept = f"`{preset['filter']}`" if "filter" in preset else ""
        cells = (f"`{preset['metric']}`", kept, preset["num_fewshot"], preset["limit"])
        rows.append(f"| `{name}` | {' | '.join(map(str, cells))} |")
    return "\n".join(rows) + "\n"


def forms() -> str:
    """Write a table per file of the run folder, and one for each form in them."""
    parts: dict[str, str] = {}
    for title, model in FORMS.items():
        schema = model.json_schema()
        parts[_title(title)] = _form(schema, schema)
        for name, inner in schema.get("$defs", {}).items():
            if "properties" in inner:
                parts[f"`{name}`"] = _form(inner, schema)
    return "\n".join(f"**{title}**\n\n{table}\n" for title, table in parts.items())


def _title(title: str) -> str:
    key, _, about = title.partition(", ")
    return f"`{key}`" + (f", {about}" if about else "")


def _form(form: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    rows = ["| key | value | meaning |", "| --- | --- | --- |"]
    for name, field in form["properties"].items():
        about = field.get("description", "").replace("\n", " ")
        rows.append(f"| `{name}` | {_values(field, schema, _named)} | {about} |")
    return "\n".join(rows)


def _rows(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, field in schema["properties"].items():
        about = _resolved(field, schema).get("description", "").replace("\n", " ")
        default = "required" if name in schema.get("required", ()) else _default(field)
        values = _values(field, schema, _below).replace("|", "\\|")
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


Refer = Callable[[str], str]


def _below(name: str) -> str:
    return "mapping" if "Backend" in name else "mapping, below"


def _named(name: str) -> str:
    return f"`{name}`"


def _values(field: Mapping[str, Any], schema: Mapping[str, Any], refer: Refer) -> str:
    if "$ref" in field:
        return refer(field["$ref"].split("/")[-1])
    if "anyOf" in field:
        options = [o for o in field["anyOf"] if o.get("type") != "null"]
        if refer is _named:  # what is written may be null; what is read may be left out
            options = field["anyOf"]
        return " or ".join(_values(option, schema, refer) for option in options)
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    inner = field.get("additionalProperties") or field.get("items")
    if refer is _named and isinstance(inner, dict) and inner:
        kind = "list of" if field["type"] == "array" else "mapping to"
        values = _values(inner, schema, refer)
        return f"{kind} ({values})" if " or " in values else f"{kind} {values}"
    return _type(field)


def _type(field: Mapping[str, Any]) -> str:
    if not field:
        return "anything"
    lowest = f" from {field['minimum']}" if "minimum" in field else ""
    if "maximum" in field:
        lowest += f" up to {field['maximum']}"
    if field.get("maxItems") == 2:
        return "two numbers"
    names = {"boolean": "`true`, `false`", "object": "mapping", "array": "list"}
    names |= {"integer": "whole number", "string": "text", "number": "number"}
    return {**names, "null": "null"}[field["type"]] + lowest


PARTS: dict[str, Callable[[], str]] = {
    "reference": reference,
    "forms": forms,
    "presets": presets,
    **FIGURES,
}


if __name__ == "__main__":
    for path in PAGES.values():
        before = path.read_text(encoding="utf-8")
        path.write_text(with_parts(before), encoding="utf-8")
