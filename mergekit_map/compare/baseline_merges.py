"""The single merges that a front is held against, as configurations of mergekit.

Table 4 of the paper names them and gives no parameters. Here they have those that their
own papers use where nothing is tuned: TIES keeps the largest fifth of each task vector;
DARE and DELLA keep half; where signs are elected, what agrees is averaged
(``normalize``), every model with weight 1. The tuned ones take the best that a scan
finds on the tasks themselves: of the scale of the merged task vector (``lambda``), and
of the densities below. All have the base, models, dtype and tokenizer of the merge that
is searched. Its layers and filters, if it has any, are left out: a baseline takes whole
models.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mergekit_map.config.specs import SearchSpec
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.models.references import referenced_models

Config: TypeAlias = dict[str, Any]  # of mergekit


class Names(NamedTuple):
    """What the methods are called in the tables, in the paper's order."""

    singles: str = "Single task models"
    best_single: str = "Best single model"  # ours
    soup: str = "Model soup"
    ties: str = "TIES"
    dare_ties: str = "DARE-TIES"
    arithmetic: str = "Task arithmetic"
    by_preference: str = "TA, preference as weights"
    dare: str = "DARE-TA"
    della: str = "DELLA"
    ties_tuned: str = "TIES, tuned"
    dare_ties_tuned: str = "DARE-TIES, tuned"
    dare_tuned: str = "DARE-TA, tuned"
    della_tuned: str = "DELLA, tuned"
    slerp: str = "SLERP"  # ours


NAMES = Names()

_TRIMMED = {"density": 0.2}  # of the TIES paper
_DROPPED = {"density": 0.5}
# Densities that are tried, the usual one first. DARE's paper drops from a tenth to nine
# tenths; DELLA's rates spread around the density, which leaves no room at the ends.
DROPPED = (0.5, 0.1, 0.3, 0.7, 0.9)
TUNED = {
    NAMES.ties_tuned: ("ties", (0.2, 0.1, 0.3)),
    NAMES.dare_ties_tuned: ("dare_ties", DROPPED),
    NAMES.della_tuned: ("della", (0.5, 0.3, 0.7)),
}

# Keys of a configuration that say how it merges; all others are kept.
_REPLACED = {"merge_method", "base_model", "models", "slices", "modules", "parameters"}


def fine_tuned_models(space: MergeSpace) -> list[str]:
    """List the models besides the base, as the user wrote them."""
    base = str(space.template.get("base_model"))
    return [model for model in referenced_models(space.template) if model != base]


def has_base(space: MergeSpace) -> bool:
    """Tell whether there are task vectors: differences to a base model."""
    return space.template.get("base_model") is not None


def single_model(space: MergeSpace, model: str) -> MergeSpace:
    """Give one model as it is, in the dtype of the merge."""
    return _fixed(_config(space, "passthrough", [model]))


def fixed_merges(space: MergeSpace) -> dict[str, MergeSpace]:
    """Give the merges with nothing to choose that the models allow, by name."""
    models = fine_tuned_models(space)
    soup = _config(space, "linear", models, each={"weight": 1.0})
    found = {NAMES.soup: _fixed(soup)}
    if len(models) == 2:
        halfway = _config(space, "slerp", models, base=models[0])
        found[NAMES.slerp] = _fixed({**halfway, "parameters": {"t": 0.5}})
    electing = (
        (NAMES.ties, "ties", _TRIMMED),
        (NAMES.dare_ties, "dare_ties", _DROPPED),
        (NAMES.della, "della", _DROPPED),
    )
    for name, method, density in electing if has_base(space) else ():
        config = _with_vectors(space, method, {"weight": 1.0, **density})
        found[name] = _fixed({**config, "parameters": {"normalize": True}})
    return found


def elected(space: MergeSpace, method: str, density: float, scale: float) -> MergeSpace:
    """Give a method that elects signs, the mean of what agrees times ``scale``."""
    each = {"weight": 1.0, "density": density}
    config = _with_vectors(space, method, each)
    return _fixed({**config, "parameters": {"normalize": True, "lambda": scale}})


def dare_arithmetic(
    space: MergeSpace, weight: float, density: float = DROPPED[0]
) -> MergeSpace:
    """Give DARE with task arithmetic, every model with the same weight."""
    each = {"weight": weight, "density": density}
    return _fixed(_with_vectors(space, "dare_linear", each))


def task_arithmetic(space: MergeSpace) -> MergeSpace:
    """Give task arithmetic with a coefficient per model."""
    return _searched(_with_vectors(space, "task_arithmetic", {}))


def _with_vectors(space: MergeSpace, method: str, each: Mapping[str, float]) -> Config:
    base = str(space.template["base_model"])
    return _config(space, method, fine_tuned_models(space), base=base, each=each)


def _config(
    space: MergeSpace,
    method: str,
    models: list[str],
    *,
    base: str | None = None,
    each: Mapping[str, float] | None = None,
) -> Config:
    kept = {k: v for k, v in space.template.items() if k not in _REPLACED}
    config: Config = {"merge_method": method, **copy.deepcopy(kept)}
    # The tokenizer stays that of the searched base: a baseline may have another.
    searched, tokenizer = space.template.get("base_model"), config.get("tokenizer")
    for place, key in ((config, "tokenizer_source"), (tokenizer or {}, "source")):
        if searched is not None and place.get(key) == "base":
            place[key] = searched
    if base is not None:
        config["base_model"] = base
    parameters = {"parameters": dict(each)} if each else {}
    config["models"] = [{"model": m, **copy.deepcopy(parameters)} for m in models]
    return config


def _fixed(config: Config) -> MergeSpace:
    return MergeSpace(config, (), np.empty((0, 2)))


def _searched(config: Config) -> MergeSpace:
    space, problems = build_space(config, SearchSpec())
    assert space is not None, problems  # nothing in it depends on the user
    return space
