"""What the pages have from the code and from kept results, made from these themselves.

Write it anew with: python tests/reference.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fakes import make_study
from pages import PAGES, ROOT
from pydantic import BaseModel, TypeAdapter

from mergekit_map.compare.opponents import OPPONENTS
from mergekit_map.config.schema import MapBlock, SearchSpec, SelectSpec
from mergekit_map.config.tasks import PRESETS, TASK_KINDS, EngineSpec, TextSource
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation
from mergekit_map.search.checks import forecast
from mergekit_map.search.planning import design
from mergekit_map.search.study import Study
from mergekit_map.types import Metric

RESULTS = ROOT / "benchmarks" / "results"


def default_merges() -> str:
    """Write how many merges a search begins with and measures at most, by default."""
    rows = [
        (str(d), str(len(design(_study(d)))), str(_study(d).wanted_evaluations))
        for d in (1, 2, 3, 4, 6, 8)
    ]
    return _markdown(["coefficients", "merges at first", "merges at most"], rows)


def nested_measurements() -> str:
    """Write what nested and plain searches measure, by as many models as tasks."""
    rows = []
    for n in (3, 4, 6, 8):
        studies = [_study(n, strategy) for strategy in ("map", "nested")]
        merges = [forecast(study).expected for study in studies]
        rows.append([str(n), *map(str, merges)])
    return _markdown(["models", "one search, at most", "nested"], rows)


def _study(n: int, strategy: str = "map") -> Study:
    """Search n models, measured on as many tasks."""
    names = [f"m{i}" for i in range(n)]
    return make_study(names, names, metric=Metric(True, 0.0, 1.0), strategy=strategy)


def kept(result: str, corner: str, columns: int | None = None) -> Callable[[], str]:
    """Copy a table that was kept, or its first columns, by its first heading."""

    def copy() -> str:
        text = (RESULTS / result).read_text(encoding="utf-8")
        pattern = rf"^\| ?{re.escape(corner)} ?\|.*?(?=\n\n|\Z)"
        found = re.search(pattern, text, re.M | re.S)
        assert found is not None, f"{result} has no table that begins with {corner!r}"
        lines = [line.strip("|").split("|") for line in found[0].splitlines()]
        header, _, *rows = [[cell.strip() for cell in line[:columns]] for line in lines]
        return _markdown(header, rows)

    return copy


def _markdown(
    header: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1
) -> str:
    """Write a table of so many columns of text, and then of numbers."""
    rule = [" --- "] * texts + [" ---: "] * (len(header) - texts)
    head, *body = [f"| {' | '.join(line)} |" for line in [header, *rows]]
    return "\n".join([head, f"|{'|'.join(rule)}|", *body]) + "\n"


_MADE = re.compile(
    r"(<!-- made: (?P<name>[\w-]+) -->)(?P<text>.*?)(<!-- end -->)", re.S
)
_TASK = "tasks.NAME."
TASKS = {
    name: TASK_KINDS[name] for name in ("perplexity", "lm_eval", "preset", "python")
}
OTHERS: dict[str, type[BaseModel]] = {
    f"{_TASK}perplexity.": TextSource,
    "search.": SearchSpec,
    "select.": SelectSpec,
    "": MapBlock,
    "engine.": EngineSpec,
}
# The keys that people use; the others stand in the table of advanced ones.
_OF_TASKS = (
    "perplexity perplexity.file perplexity.dataset perplexity.field max_tokens preset "
    "lm_eval metric filter limit num_fewshot apply_chat_template python direction "
    "documents"
)
_OF_SEARCH = "evaluations hours bounds holdout seed"
_OF_SELECT = "prefer require not_worse_than knee"
COMMON = [
    *(f"{_TASK}{key}" for key in _OF_TASKS.split()),
    *(f"search.{key}" for key in _OF_SEARCH.split()),
    *(f"select.{key}" for key in _OF_SELECT.split()),
]
FORMS: dict[str, TypeAdapter[Any]] = {
    "front.json": TypeAdapter(Front),
    "evaluations.jsonl": TypeAdapter(Evaluation),
}


def with_parts(text: str) -> str:
    """Make every part of a page anew."""

    def make(part: re.Match[str]) -> str:
        made = PARTS[part["name"]]()
        lines = "\n" if "\n" in made else ""
        return f"{part[1]}{lines}{made}{part[4]}"

    return _MADE.sub(make, text)


def keys() -> dict[str, list[str]]:
    """Write a row for every key of the ``map:`` block, by the path of the key."""
    rows: dict[str, list[str]] = {}
    parts = [*((_TASK, model) for model in TASKS.values()), *OTHERS.items()]
    for path, model in parts:
        schema = model.model_json_schema()
        for name, field in schema["properties"].items():
            kinds = [kind for kind, m in TASKS.items() if name in m.model_fields]
            if path != _TASK:
                kinds = ["perplexity"] if path.startswith(_TASK) else []
            of = "any" if len(kinds) == len(TASKS) else ", ".join(kinds)
            needed = name not in TASKS and name in schema.get("required", ())
            if (key := f"{path}{name}") not in {"tasks", "search", "select"}:
                rows.setdefault(key, _row(key, field, schema, of, needed))
    return rows


def key_table(*, common: bool) -> str:
    """Write the table of the keys that people use, or of all others."""
    rows = keys()
    chosen = COMMON if common else [key for key in rows if key not in COMMON]
    header = ["key", "tasks", "value", "default", "meaning"]
    return _markdown(header, [rows[key] for key in chosen], texts=5)


def _row(
    key: str,
    field: Mapping[str, Any],
    schema: Mapping[str, Any],
    tasks: str,
    required: bool,
) -> list[str]:
    if (about := field.get("description")) is None and "$ref" in field:
        about = schema["$defs"][field["$ref"].split("/")[-1]].get("description")
    about = (about or "").replace("\n", " ")
    values = _values(field, written=False).replace("|", "\\|")
    default = "required" if required else _default(field)
    return [f"`{key}`", tasks, values, default, about]


def presets() -> str:
    """Write a row per benchmark that is known by name."""
    rows = []
    for name, preset in PRESETS.items():
        kept = f"`{preset['filter']}`" if preset["filter"] else ""
        numbers = [str(preset[key]) for key in ("num_fewshot", "limit")]
        rows.append([f"`{name}`", f"`{preset['metric']}`", kept, *numbers])
    header = ["preset", "metric", "filter", "examples", "documents"]
    return _markdown(header, rows, texts=3)


def forms() -> str:
    """Write a table per file of the run folder that other programs may read."""
    return "\n".join(f"`{file}`:\n\n{_form(file)}" for file in FORMS)


def _form(file: str) -> str:
    schema = FORMS[file].json_schema()
    # The keys of `select` stand in configuration.md, readings in the first table.
    left_out = {"SelectSpec"} | ({"Reading"} if file != "front.json" else set())
    shown = {n: d for n, d in schema.get("$defs", {}).items() if n not in left_out}
    rows = []
    for of, form in {"": schema, **shown}.items():
        for name, field in form.get("properties", {}).items():
            about = field.get("description", "").replace("\n", " ")
            rows.append([of, f"`{name}`", _values(field, written=True), about])
    return _markdown(["of", "key", "value", "meaning"], rows, texts=4)


def _default(field: Mapping[str, Any]) -> str:
    if (default := field.get("default")) is None or isinstance(default, dict):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        return f"`[{', '.join(f'{v:g}' for v in default)}]`"
    return f"`{default}`"


def _values(field: Mapping[str, Any], *, written: bool) -> str:
    """Write what a key may hold: in files that are written, or in a configuration."""
    if "$ref" in field:
        return f"`{field['$ref'].split('/')[-1]}`" if written else "mapping"
    if "anyOf" in field:
        options = [o for o in field["anyOf"] if o.get("type") != "null"]
        if written:  # which may be null, where what is read may be left out
            options = field["anyOf"]
        return " or ".join(_values(option, written=written) for option in options)
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    inner = field.get("additionalProperties") or field.get("items")
    if written and isinstance(inner, dict) and inner:
        kind = "list of" if field["type"] == "array" else "mapping to"
        values = _values(inner, written=written)
        return f"{kind} ({values})" if " or " in values else f"{kind} {values}"
    return _type(field)


_MANY = 10_000  # a larger maximum is only there to refuse nonsense


def _type(field: Mapping[str, Any]) -> str:
    if not field:
        return "anything"
    least = field.get("minimum", -_MANY)
    lowest = f" from {least}" if least > -_MANY else ""
    if field.get("maximum", _MANY) < _MANY:
        lowest += f" up to {field['maximum']}"
    if field.get("maxItems") == 2:
        return "two numbers"
    names = {"boolean": "`true`, `false`", "object": "mapping", "array": "list"}
    names |= {"integer": "whole number", "string": "text", "number": "number"}
    return {**names, "null": "null"}[field["type"]] + lowest


PARTS: dict[str, Callable[[], str]] = {
    "common-keys": partial(key_table, common=True),
    "advanced-keys": partial(key_table, common=False),
    "forms": forms,
    "presets": presets,
    "contest-matches": kept("../../docs/results/contest.md", "models"),
    "default-evaluations": default_merges,
    "nested-measurements": nested_measurements,
    "opponents": lambda: ", ".join(f"`{name}`" for name in OPPONENTS) + "\n",
    "scale-parameters": kept("scale.md", "parameters"),
    "scale-tasks": kept("scale.md", "tasks"),
    "scale-models": kept("scale.md", "models"),
    "workers": kept("workers.md", "search", columns=3),
    "scale-side": kept("scale.md", "side by side"),
}


if __name__ == "__main__":
    for path in PAGES.values():
        before = path.read_text(encoding="utf-8")
        path.write_text(with_parts(before), encoding="utf-8")
