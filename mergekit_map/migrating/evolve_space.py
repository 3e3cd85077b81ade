"""The search space of a mergekit-evolve configuration, as mergekit's YAML says it.

What is searched there and cannot be here has a fixed value: densities, and weights of
their own for groups of layers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mergekit_map.migrating.genome import Genome

SPARSE = {"ties", "dare_ties"}  # methods with a density
DENSITY = 0.5  # mergekit-evolve starts from 1, at which nothing is left out


@dataclass(frozen=True)
class Space:
    """What is merged, in mergekit's schema, and how much of it is searched."""

    merge: Mapping[str, Any]
    coefficients: int
    ratio: bool  # whether only the ratio of the weights counts
    filters: bool  # whether the filters have weights of their own


def build_evolve_space(genome: Genome) -> Space:
    """Say what is merged and searched, as far as it can be here."""
    method = genome.merge_method
    models = genome.merged
    filters = list(dict.fromkeys(genome.filters or ()))
    if genome.task_vectors:
        # Asked for, not only by default; three weights have no one ratio.
        ratio = bool(genome.normalize) and len(models) == 2 and not filters
    else:
        ratio = method == "slerp" or genome.normalize is not False
    if ratio:
        filters = []
    merge: dict[str, Any] = {"merge_method": _method(genome)}
    if genome.task_vectors:
        merge["base_model"] = genome.base_model
    merge["models"] = _entries(models, filters, sparse=method in SPARSE)
    parameters = {}
    if genome.task_vectors or not ratio:
        parameters["normalize"] = ratio
    if method in SPARSE:
        parameters["int8_mask"] = True
    merge |= {"parameters": parameters} if parameters else {}
    tokenizer = genome.tokenizer_source
    if tokenizer == "base" and not genome.task_vectors and genome.base_model:
        tokenizer = genome.base_model
    merge |= {"tokenizer_source": tokenizer} if tokenizer else {}
    merge["dtype"] = "bfloat16"
    count = len(models) * (1 + len(filters)) - ratio
    return Space(merge, count, ratio, bool(filters))


def _method(genome: Genome) -> str:
    if genome.merge_method != "slerp":
        return genome.merge_method
    return "nuslerp" if len(genome.models) == 2 else "multislerp"


def _entries(
    models: Sequence[str], filters: Sequence[str], *, sparse: bool
) -> list[dict[str, Any]]:
    """List the models, with a name in the place of every weight under a filter."""
    short = [re.split(r"[/+]", m.rstrip("/"))[-1].split("@")[0] for m in models]
    names = short if len(set(short)) == len(short) else models
    entries = []
    for model, name in zip(models, names, strict=True):
        parameters: dict[str, Any] = {"density": DENSITY} if sparse else {}
        if filters:
            parameters["weight"] = [
                *({"filter": f, "value": f"{name}_{f}"} for f in filters),
                {"value": f"{name}_rest"},
            ]
        entry: dict[str, Any] = {"model": model}
        entries.append(entry | ({"parameters": parameters} if parameters else {}))
    return entries
