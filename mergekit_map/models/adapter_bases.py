"""Adapters that stand alone in a configuration get the model they were trained on.

mergekit wants ``base+adapter``; an adapter's own adapter_config.json names that base.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mergekit_map.config.map_lines import last_part
from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.models.findings import Finding
from mergekit_map.models.lora import same_model
from mergekit_map.models.references import Reference, referenced_models
from mergekit_map.models.sources import find_description

_REPOSITORY = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


def with_adapter_bases(
    merge: MergeConfig, directory: Path
) -> tuple[MergeConfig, dict[str, Finding]]:
    """Write ``base+adapter`` for every adapter that is merged by itself.

    The base is that of the merge where both are called the same, or else the one that
    the adapter names, a folder from ``directory`` or a repository. An adapter whose
    base is nowhere stays as it is, which is told when the models are checked.

    Returns:
        The configuration, and what is to be said of each model that was changed.
    """
    front = str(merge["base_model"]) if merge.get("base_model") else None
    bases = {
        reference: base
        for reference in referenced_models(merge)
        if reference != front and (base := _base_of(reference, front, directory))
    }
    whole = {reference: f"{base}+{reference}" for reference, base in bases.items()}
    said = {whole[adapter]: _said(adapter, base) for adapter, base in bases.items()}
    replaced: MergeConfig = _replaced(merge, whole) if whole else merge
    return replaced, said


def _said(adapter: str, base: str) -> Finding:
    cause = (
        f"{last_part(adapter)} is a LoRA adapter, so it is merged as BASE+ADAPTER, and "
        f"BASE is what its adapter_config.json names: {base}"
    )
    return Finding("adapter-filled-in", "note", cause)


def _base_of(reference: str, front: str | None, directory: Path) -> str | None:
    if Reference.parse(reference).adapter is not None:
        return None
    try:
        files = find_description(reference)
    except MergeError:
        return None
    named = files.config.get("base_model_name_or_path")
    if not files.is_adapter or not isinstance(named, str) or not named:
        return None
    if front is not None and same_model(named, front):
        return front
    if (directory / named).is_dir():
        folder = str((directory / named).resolve())
        return None if set("+@") & set(folder) else folder
    if not _REPOSITORY.fullmatch(named):
        return None
    revision = files.config.get("revision")
    return f"{named}@{revision}" if revision else named


def _replaced(content: Any, whole: Mapping[str, str]) -> Any:
    if isinstance(content, list):
        return [_replaced(item, whole) for item in content]
    if not isinstance(content, Mapping):
        return content
    return {
        key: whole.get(value, value)
        if key == "model" and isinstance(value, str)
        else _replaced(value, whole)
        for key, value in content.items()
    }
