"""The models that a merge configuration names, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mergekit_map.config.yaml_file import KeyPath

Setting = tuple[KeyPath, Any]


def referenced_models(merge: Mapping[str, Any]) -> dict[str, KeyPath]:
    """Map every model of a configuration, the base included, to where it stands."""
    found: dict[str, KeyPath] = {}
    if merge.get("base_model") is not None:
        found[str(merge["base_model"])] = ("base_model",)
    for key, entry, _ in walk_entries(merge):
        found.setdefault(str(entry["model"]), (*key, "model"))
    return found


def walk_entries(
    merge: Mapping[str, Any], key: KeyPath = (), outer: Setting | None = None
) -> Iterator[tuple[KeyPath, Mapping[str, Any], Setting | None]]:
    """Walk the entries of models: where each stands, and the weight set around it."""
    for index, entry in enumerate(merge.get("models") or ()):
        yield (*key, "models", index), entry, outer
    for index, part in enumerate(merge.get("slices") or ()):
        place = (*key, "slices", index)
        inner = weight_setting(part, place) or outer
        for number, entry in enumerate(part["sources"]):
            yield (*place, "sources", number), entry, inner
    for name, module in (merge.get("modules") or {}).items():
        place = (*key, "modules", name)
        yield from walk_entries(module, place, weight_setting(module, place) or outer)


def weight_setting(part: Mapping[str, Any], key: KeyPath) -> Setting | None:
    """Give the weight that a part of a configuration sets, and where it stands."""
    weight = (part.get("parameters") or {}).get("weight")
    return None if weight is None else ((*key, "parameters", "weight"), weight)
