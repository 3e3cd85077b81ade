"""Configurations of a model, and what they said before a function of a user ran."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import GenerationConfig, PretrainedConfig


@dataclass(frozen=True, eq=False)
class ModelSettings:
    """A configuration of the model, and what it said."""

    name: str
    settings: Any
    content: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, settings: Any) -> ModelSettings:
        """Keep what a configuration says now."""
        content = {
            # Others of its kind are looked at by themselves.
            key: value if _is_settings(value) else copy.deepcopy(value)
            for key, value in vars(settings).items()
        }
        return cls(name, settings, content)

    def restore(self) -> list[str]:
        """Put back what it said, and name what was another and matters."""
        there = vars(self.settings)
        other = [
            key
            for key in {**self.content, **there}
            if key not in there
            or key not in self.content
            or not same(there[key], self.content[key])
        ]
        for key in other:
            there.pop(key, None)
            if key in self.content:
                known = self.content[key]
                there[key] = known if _is_settings(known) else copy.deepcopy(known)
        seen = [key for key in other if "attn" in key or not key.startswith("_")]
        return [f"{self.name}.{key}" for key in seen]


def gather_settings(key: str, value: Any, found: dict[int, ModelSettings]) -> None:
    """Find configurations, and those in them."""
    if not _is_settings(value) or id(value) in found:
        return
    found[id(value)] = ModelSettings.of(key, value)
    for name, part in vars(value).items():
        gather_settings(name, part, found)


def same(one: Any, other: Any) -> bool:
    """Compare by what they are, where that can be told."""
    if one is other:
        return True
    if isinstance(one, Tensor) or _is_settings(one) or type(one) is not type(other):
        return False
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - of any kind, compared as it may not expect
        return False


def _is_settings(value: Any) -> bool:
    return isinstance(value, PretrainedConfig | GenerationConfig)
