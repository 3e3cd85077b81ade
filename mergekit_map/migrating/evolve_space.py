"""The search space of a mergekit-evolve configuration, as mergekit's YAML says it.

What is searched there and cannot be here has a fixed value: densities, and weights of
their own for groups of layers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.migrating.genome import Genome

SPARSE = {"ties", "dare_ties"}  # methods with a density
DENSITY = 0.5  # mergekit-evolve starts from 1, at which nothing is left out


@dataclass(frozen=True)
class Space:
    """What is merged, in mergekit's schema, and how much of it is searched."""

    merge: MergeConfig
    coefficients: int
    ratio: bool  # whether only the ratio of the weights counts
    filters: bool  # whether the filters have weights of their own


def build_evolve_space(genome: Genome) -> Space:
    """Say what is merged and searched, as far as it can be here."""
    method: str = genome.merge_method
    models = genome.merged
    filters = list(dict.fromkeys(genome.filters or ()))
    if genome.task_vectors:
        # Asked for, not only by default; three weights have no one ratio.
        ratio = bool(genome.normalize) and len(models) == 2 and not filters
    else:
        ratio = method == "slerp" or genome.normalize is not False
    if ratio:
        filters = []
    if method == "slerp":
        method = "nuslerp" if len(genome.models) == 2 else "multislerp"
    parameters = {"normalize": ratio} if genome.task_vectors or not ratio else {}
    tokenizer = genome.tokenizer_source
    if tokenizer == "base" and not genome.task_vectors and genome.base_model:
        tokenizer = genome.base_model
    merge = {
        "merge_method": method,
        "base_model": genome.base_model if genome.task_vectors else None,
        "models": _entries(models, filters, sparse=method in SPARSE),
        "parameters": parameters | ({"int8_mask": True} if method in SPARSE else {}),
        "tokenizer_source": tokenizer,
        "dtype": "bfloat16",
    }
    merge = {key: value for key, value in merge.items() if value}
    count = len(models) * (1 + len(filters)) - ratio
    return Space(merge, count, ratio, bool(filters))


def _entries(
    models: Sequence[str], filters: Sequence[str], *, sparse: bool
) -> list[MergeConfig]:
    short = [re.split(r"[/+]", m.rstrip("/"))[-1].split("@")[0] for m in models]
    names = short if len(set(short)) == len(short) else models
    entries: list[MergeConfig] = []
    for model, name in zip(models, names, strict=True):
        named = [{"filter": f, "value": f"{name}_{f}"} for f in filters]
        weights = {"weight": [*named, {"value": f"{name}_rest"}]} if filters else {}
        parameters = {**({"density": DENSITY} if sparse else {}), **weights}
        given = {"parameters": parameters} if parameters else {}
        entries.append({"model": model, **given})
    return entries
