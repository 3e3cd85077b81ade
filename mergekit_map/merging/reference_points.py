"""Reference points: base, parents and soup, which a user has without a search.

The searched method with one weight at 1 is not always the model itself: TIES drops
parts of it. Such reference points are linear merges of the models, which are exact: the
weight of one model is 1, or the parents share it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mergekit_map.merging.methods import drops_parts, elects_signs
from mergekit_map.merging.space import Coefficient, MergeSpace
from mergekit_map.merging.validation import (
    leaves_of,
    method_spec,
    model_entries,
    settings_of,
)
from mergekit_map.types import BASE, NO_SINGLE_MODEL, SOUP

_SETTINGS = (  # what a linear merge takes over from the searched one
    *("base_model", "dtype", "out_dtype"),
    *("tokenizer", "tokenizer_source", "chat_template"),
)
_ROUNDING = 1e-9  # of weights that are shares

Weights = Mapping[str, float]  # by coefficient, or by model
Merges = Mapping[str, Weights]  # label to coefficients


@dataclass(frozen=True, eq=False)
class ReferencePoints:
    """How each reference point can be measured."""

    own: Merges  # merges of the space that are reference points
    corners: Merges  # merges of single weights and of equal ones that are none
    linear: MergeSpace  # a linear merge of the same models
    others: Merges  # reference points as coefficients of the linear merge


def reference_points(space: MergeSpace, layers: int | None = None) -> ReferencePoints:
    """Choose the reference points of a space whose models have so many layers."""
    merges = space.anchors()
    if not space.coefficients:  # a merge by itself, such as a baseline
        return ReferencePoints(merges, {}, space, {})
    linear, weights = linear_space(space), _weights(space)
    whole = _has_all_layers(space.template, layers)
    own = {
        label: merge
        for label, merge in merges.items()
        if whole and label in weights
        if _is_that_model(space, merge, label, weights[label])
    }
    method = method_spec(space.template).pretty_name or space.template["merge_method"]
    names = {label: f"{label} alone, {method}" for label in merges}
    names |= {BASE: f"weights of 0, {method}", SOUP: f"uniform {method}"}
    for label, merge in merges.items():  # other weights may be fixed, or shared
        if label not in weights or not _has_weights(space, merge, weights[label]):
            names[label] = ", ".join(f"{n} {w:g}" for n, w in merge.items())
    # There is no SLERP of a model alone where a tensor of it is that of the base.
    made = [SOUP] if space.template["merge_method"] == "multislerp" else [*merges]
    corners = {names[k]: merges[k] for k in made if k not in own}
    others = {label: of for label, of in weights.items() if label not in own}
    return ReferencePoints(own, corners, linear, others)


def linear_space(space: MergeSpace) -> MergeSpace:
    """Return a linear merge of base and parents, with a coefficient for each."""
    models = _models(space)
    names = tuple(models.values())
    template: dict[str, Any] = {
        **{key: space.template[key] for key in _SETTINGS if key in space.template},
        "merge_method": "linear",
        "models": [{"model": model} for model in models],
        "parameters": {"normalize": False},
    }
    coefficients = tuple(
        Coefficient(name, name, (("models", index, "parameters", "weight"),))
        for index, name in enumerate(names)
    )
    bounds = np.tile([0.0, 1.0], (len(names), 1))
    parents = tuple(name for name in names if name not in NO_SINGLE_MODEL)
    return MergeSpace(template, coefficients, bounds, parents=parents)


def _models(space: MergeSpace) -> dict[str, str]:
    """Name the base, if there is one, and the parents, by reference."""
    entries = [e.model for e in model_entries(space.template) if e.weighted]
    parents = dict(zip(dict.fromkeys(entries), space.parents, strict=True))
    base = space.template.get("base_model")
    return parents if base is None else {str(base): BASE, **parents}


def _weights(space: MergeSpace) -> dict[str, dict[str, float]]:
    """Return the weight of each model in each reference point."""
    models = _models(space)
    base = models.get(str(space.template.get("base_model")))

    def only(*names: str) -> dict[str, float]:
        return {name: (name in names) / len(names) for name in models.values()}

    # Of shares of a whole, the base is one parent among others.
    is_apart = base == BASE or not space.remainder
    points = {BASE: only(base)} if base is not None and is_apart else {}
    points |= {parent: only(parent) for parent in space.parents}
    return {**points, SOUP: only(*space.parents)}


def soup_weights(space: MergeSpace) -> dict[str, float]:
    """Return the plain average as coefficients of the linear merge."""
    return _weights(space)[SOUP]


def _is_that_model(
    space: MergeSpace, merge: Weights, label: str, weights: Weights
) -> bool:
    """Whether a merge of the space is a reference point, up to rounding."""
    if not _has_weights(space, merge, weights):
        return False
    config = space.config(merge)
    if (elected := elects_signs(config["merge_method"])) is None:
        return str(config["merge_method"]) == "linear"
    if label == BASE:
        return True
    scales = settings_of(config, "lambda")
    whole = not drops_parts(config) and all(scale == 1 for scale in scales)
    return whole and not (elected and label == SOUP)


def _has_weights(space: MergeSpace, merge: Weights, weights: Weights) -> bool:
    """Whether each model has its weight in a merge of the space, up to rounding."""
    config = space.config(merge)
    names = _models(space)
    places = [(entry.key[:-1], entry.model) for entry in model_entries(config)]
    parts, models = ({place[i] for place in places} for i in (0, 1))
    if len(places) != len(parts) * len(models):  # twice, or not in each slice
        return False
    for entry in model_entries(config):
        leaves = [leaf for _, leaf in leaves_of(entry.weight)]
        wanted = weights[names[entry.model]]
        equal = (math.isclose(float(x), wanted, abs_tol=_ROUNDING) for x in leaves)
        if entry.weighted and not (leaves and all(equal)):
            return False
    return True


def _has_all_layers(merge: Any, layers: int | None) -> bool:
    """Whether slices, if there are some, are all layers, alike for all models."""
    start = 0
    for part in merge.get("slices") or ():
        ranges = {tuple(entry["layer_range"]) for entry in part["sources"]}
        if len(ranges) > 1 or min(ranges)[0] != start:
            return False
        start = min(ranges)[1]
    modules = (merge.get("modules") or {}).values()
    return start in {0, layers} and all(_has_all_layers(m, layers) for m in modules)
