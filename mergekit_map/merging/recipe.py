"""Recipes: merges as standard mergekit YAML, and what they are known by."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig, yaml_text
from mergekit_map.merging.methods import builtin_method
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.staged import by_stage_name
from mergekit_map.models.references import (
    map_references,
    models_with_adapter,
    referenced_models,
)
from mergekit_map.models.sources import fingerprint
from mergekit_map.results.identity import Identity

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


def stock_config(space: MergeSpace, coefficients: Mapping[str, float]) -> MergeConfig:
    """Give the configuration that unextended mergekit understands."""
    config = space.config(coefficients)
    return {**config, "merge_method": builtin_method(config["merge_method"])}


@dataclass(frozen=True, eq=False)
class Recipes:
    """How the merges of a front are written in mergekit's own terms."""

    space: MergeSpace
    options: MergeOptions
    stages: Sequence[MergeConfig] = ()  # what is merged before, each with a name
    folder: Path | None = None  # where that lies, if there are stages

    def text(self, coefficients: Mapping[str, float], comments: Sequence[str]) -> str:
        """Write a recipe, for ``mergekit-multi`` where there are stages."""
        config = stock_config(self.space, coefficients)
        if self.folder is not None:
            config = by_stage_name(config, self.folder)
        return yaml_text([*self.stages, config], comments)

    def command(self, recipe: Path, out: str) -> str:
        """Give the stock command that writes a recipe's checkpoint, bit for bit.

        mergekit takes the stages that are there already for what it would write.
        """
        words = ["mergekit-yaml", str(recipe), out]
        if self.folder is not None:
            stages = ["--intermediate-dir", str(self.folder), "--out-path", out]
            words = ["mergekit-multi", str(recipe), *stages]
        return shlex.join([*words, *_merge_options(self.space, self.options)])


def _merge_options(space: MergeSpace, options: MergeOptions) -> list[str]:
    words = []
    if draws_random_numbers(space):
        words += ["--random-seed", str(options.random_seed)]
    if models_with_adapter(space.template):
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


def merge_identity(
    space: MergeSpace, options: MergeOptions, names: Mapping[str, str] | None = None
) -> Identity:
    """Name all that decides what a merge with given coefficients is.

    Two runs may share measurements only if these are equal. Models that lie elsewhere
    than it is written have the ``names`` that are written, by where they lie.
    """
    names, models = names or {}, referenced_models(space.template)
    template = dict(map_references(space.template, lambda m: names.get(m, m)))
    identity: Identity = {
        "method": builtin_method(template.pop("merge_method")),
        "models": {names.get(m, m): fingerprint(m) for m in models},
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
    if models_with_adapter(space.template):
        identity["lora_merge_dtype"] = options.lora_merge_dtype
    return identity
