"""The model card of a merged checkpoint. Local paths never reach it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from mergekit_map.selection import Selection

# Keys of a merge configuration that hold a model.
_REFERENCES = {"model", "base_model", "tokenizer_source", "source"}

_TEXT = """---
{metadata}
---
# {name}

A merge of language models made with
[mergekit](https://github.com/arcee-ai/mergekit), its weights found with mergekit-map.
{reason}

## Models

{models}

## Predicted and measured

| task | predicted | measured |
| --- | --- | --- |
{rows}

Predictions come from quadratic surrogates of a few dozen evaluated merges; the
measurements are of this merge.

## Recipe

```yaml
{recipe}```
"""


def write_card(
    folder: Path,
    name: str,
    recipe: Sequence[Mapping[str, Any]],
    selection: Selection,
    point: Mapping[str, Any],
) -> None:
    """Write ``README.md`` for a merge.

    ``recipe`` are its configurations, those with a ``name`` merged on the way, and
    ``point`` is as in ``front.json``.
    """
    stages = {config.get("name") for config in recipe}
    found = dict.fromkeys(model for config in recipe for model in _models(config))
    models = [model for model in found if model not in stages]
    hub_ids = [part for m in models for part in m.split("+") if not _is_local(part)]
    data = ModelCardData(
        base_model=[part.split("@")[0] for part in hub_ids],
        base_model_relation="merge",
        library_name="transformers",
        tags=["mergekit", "merge", "mergekit-map"],
    )
    text = _TEXT.format(
        metadata=data.to_yaml(),
        name=name,
        reason=selection.reason,
        models="\n".join(f"- `{_public(model)}`" for model in models),
        rows="\n".join(_row(selection, task, point) for task in selection.tasks),
        recipe=_public_recipe(recipe),
    )
    ModelCard(text).save(folder / "README.md")


def _models(part: Any) -> list[str]:
    if isinstance(part, dict):
        found = [str(v) for k, v in part.items() if k in {"model", "base_model"} and v]
        return found + [m for value in part.values() for m in _models(value)]
    if isinstance(part, list):
        return [model for item in part for model in _models(item)]
    return []


def _is_local(reference: str) -> bool:
    path = reference.split("@")[0]
    return (
        path.startswith(("/", ".", "~")) or path.count("/") > 1 or Path(path).exists()
    )


def _public(reference: str) -> str:
    parts = reference.split("+")
    return "+".join(Path(p).name if _is_local(p) else p for p in parts)


def _public_recipe(recipe: Sequence[Mapping[str, Any]]) -> str:
    configs = [_without_paths(config) for config in recipe]
    text: str = yaml.safe_dump_all(configs, sort_keys=False, width=1000)
    return text


def _without_paths(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: _public(value)
            if key in _REFERENCES and isinstance(value, str)
            else _without_paths(value)
            for key, value in part.items()
        }
    if isinstance(part, list):
        return [_without_paths(item) for item in part]
    return part


def _row(selection: Selection, task: str, point: Mapping[str, Any]) -> str:
    unit = selection.tasks[task]["unit"]
    cells = [_value(point[kind][task]) for kind in ("predicted", "measured")]
    return f"| {task}{f' ({unit})' if unit else ''} | {cells[0]} | {cells[1]} |"


def _value(reading: Mapping[str, Any]) -> str:
    if reading["value"] is None:
        return "not measured"
    stderr = reading["stderr"]
    return f"{reading['value']:.4g}" + (
        f" ± {stderr:.2g}" if stderr is not None else ""
    )
