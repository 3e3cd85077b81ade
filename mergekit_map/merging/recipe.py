"""Recipes: merges as standard mergekit YAML, and what they are known by."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from mergekit.options import MergeOptions

from mergekit_map.merging.methods import builtin_method
from mergekit_map.merging.space import MergeSpace
from mergekit_map.models.references import referenced_models
from mergekit_map.models.sources import fingerprint

# Methods that draw no random numbers, so that their merges are the same for every seed.
_DETERMINISTIC = {
    "task_arithmetic",
    "ties",
    "breadcrumbs",
    "breadcrumbs_ties",
    "linear",
    "multislerp",
    "nuslerp",
}


def stock_config(
    space: MergeSpace, coefficients: Mapping[str, float]
) -> dict[str, Any]:
    """Give the configuration that unextended mergekit understands."""
    config = space.config(coefficients)
    return {**config, "merge_method": builtin_method(config["merge_method"])}


def recipe_command(
    space: MergeSpace, recipe: str, out: str, options: MergeOptions
) -> str:
    """Give the stock command that writes this recipe's checkpoint, bit for bit."""
    return shlex.join(["mergekit-yaml", recipe, out, *_merge_options(space, options)])


def staged_command(
    space: MergeSpace, recipe: str, stages: str, out: str, options: MergeOptions
) -> str:
    """Give that of a recipe of several stages, whose checkpoints go to ``stages``.

    mergekit takes those that are there already for what it would write.
    """
    words = ["mergekit-multi", recipe, "--intermediate-dir", stages, "--out-path", out]
    return shlex.join([*words, *_merge_options(space, options)])


def _merge_options(space: MergeSpace, options: MergeOptions) -> list[str]:
    words = []
    if draws_random_numbers(space):
        words += ["--random-seed", str(options.random_seed)]
    if _has_adapters(space):
        words += ["--lora-merge-cache", str(options.lora_merge_cache)]
        if options.lora_merge_dtype:
            words += ["--lora-merge-dtype", options.lora_merge_dtype]
    if str(options.device) != "cpu":
        words += ["--device", str(options.device)]
    flags = {
        "--allow-crimes": options.allow_crimes,
        "--trust-remote-code": options.trust_remote_code,
    }
    return [*words, *(flag for flag, given in flags.items() if given)]


def draws_random_numbers(space: MergeSpace) -> bool:
    """Tell whether the merge depends on mergekit's ``--random-seed``."""
    return builtin_method(space.template["merge_method"]) not in _DETERMINISTIC


def merge_identity(space: MergeSpace, options: MergeOptions) -> dict[str, Any]:
    """Name all that decides what a merge with given coefficients is.

    Two runs may share measurements only if these are equal.
    """
    template = dict(space.template)
    identity: dict[str, Any] = {
        "method": builtin_method(template.pop("merge_method")),
        "models": {m: fingerprint(m) for m in referenced_models(space.template)},
        "coefficients": {
            c.name: [list(p) for p in c.places] for c in space.coefficients
        },
        "remainder": [list(place) for place in space.remainder],
    }
    for key in ("dtype", "out_dtype"):
        identity[key] = template.pop(key, None)
    identity["configuration"] = template
    identity["device"] = str(options.device)
    if draws_random_numbers(space):
        identity["seed"] = options.random_seed
    if _has_adapters(space):
        identity["lora_merge_dtype"] = options.lora_merge_dtype
    return identity


def _has_adapters(space: MergeSpace) -> bool:
    return any("+" in model for model in referenced_models(space.template))
