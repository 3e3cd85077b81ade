"""Merges of merges: which equal one merge, and the configurations of the others."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import SearchSpec
from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.merging.methods import builtin_method, elects_signs
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.validation import method_spec


def nests_checkpoints(space: MergeSpace, search: SearchSpec) -> bool:
    """Whether a search merges checkpoints pair by pair."""
    return search.strategy == "nested" and not is_linear(space)


def is_linear(space: MergeSpace) -> bool:
    """Whether merges are sums of the models, each times its weight.

    A merge of merges then equals one merge, with products of weights.
    """
    name = space.template["merge_method"]
    sums = elects_signs(name) is False or builtin_method(name) == "linear"
    # Weights that sum to 1 are their own normalisation.
    return sums and (bool(space.remainder) or not _normalizes(space.template))


def _normalizes(template: MergeConfig) -> bool:
    defaults = {p.name: p.default for p in method_spec(template).shared_parameters}
    parts: list[Any] = [template]
    found = [(template.get("parameters") or {}).get("normalize", defaults["normalize"])]
    while parts:  # slices and modules have parameters of their own
        part = parts.pop()
        if isinstance(part, dict):
            found.append((part.get("parameters") or {}).get("normalize", False))
        inner = part.values() if isinstance(part, dict) else part
        parts += [value for value in inner if isinstance(value, dict | list)]
    return any(value is not False for value in found)


def staging_problems(space: MergeSpace) -> list[Problem]:
    """List the reasons why a merge cannot be made two checkpoints at a time."""
    template = space.template
    text = (
        f"with {template['merge_method']!r} a merge of merges is no merge of the "
        "models, so nested merges two checkpoints at a time, which takes {needed}; or "
        "use strategy map, or a method that elects no signs, such as dare_linear"
    )

    def problem(key: KeyPath, needed: str) -> list[Problem]:
        return [Problem(key, text.format(needed=needed))]

    for key in ("slices", "modules"):
        if key in template:
            return problem((key,), "a plain list of 'models:'")
    if space.remainder:
        return problem(("merge_method",), "weights that are not shares of a whole")
    places = {place: c for c in space.coefficients for place in c.places}
    whole = {c.name: len(c.places) == 1 for c in space.coefficients}
    for index, entry in enumerate(template["models"]):
        place: KeyPath = ("models", index, "parameters", "weight")
        coefficient = places.get(place)
        base = str(entry["model"]) == str(template.get("base_model"))
        if not base and (coefficient is None or not whole[coefficient.name]):
            needed = "one searched weight for each model, without names of one's own"
            return problem(("models", index), needed)
    shared = (None, "base", "union", {"source": "base"}, {"source": "union"})
    for key in ("tokenizer", "tokenizer_source"):
        if template.get(key) not in shared:
            return problem((key,), "the tokenizer of the base model, or the union")
    return []


def pair_merge(space: MergeSpace, labels: Sequence[str], merged: Path) -> MergeConfig:
    """Return the configuration of a merge of two groups, without their weights.

    Args:
        space: The merge of all models, without ``staging_problems``.
        labels: Of the two: a coefficient of the space, or the name of a stage.
        merged: The folder that holds the checkpoints of stages.
    """
    template = copy.deepcopy(dict(space.template))
    places = {c.name: c.places[0][1] for c in space.coefficients}
    entries = template["models"]
    models = [e for i, e in enumerate(entries) if i not in places.values()]
    for label in labels:
        if label in places:
            models.append(entries[places[label]])
            continue
        models.append({"model": str(merged / label)})
        # Its task vectors have been sparsified before they were merged.
        if "density" in {p.name for p in method_spec(template).input_parameters}:
            models[-1]["parameters"] = {"density": 1.0}
    return {**template, "models": models}


def by_stage_name(config: MergeConfig, merged: Path) -> MergeConfig:
    """Replace paths in a folder by the names of stages, as ``mergekit-multi`` does."""
    named = copy.deepcopy(dict(config))
    for entry in named["models"]:
        if Path(str(entry["model"])).parent == merged:
            entry["model"] = Path(str(entry["model"])).name
    return named
