"""The single merges that a front is compared with (table 4 of the paper).

The paper names the baselines without parameters. Fixed ones have the parameters that
their own papers use where nothing is tuned: TIES keeps the largest fifth of each task
vector; DARE and DELLA keep half; where signs are elected, agreeing values are averaged
(``normalize``), and every model has weight 1. Tuned ones take the best of a scan on the
tasks themselves: of the scale of the merged task vector (``lambda``), and of the
densities below. All have the base, models and dtype of the searched merge, but not its
layers and filters: a baseline merges whole models. Single models have their tokenizers.

Notation: ``P`` preferences among ``m`` tasks; metrics are larger is better, NaN where a
measurement failed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mergekit_map.compare.contest import Bench
from mergekit_map.compare.indicators import best_merges, preferred_models
from mergekit_map.config.schema import SearchSpec
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.validation import model_entries
from mergekit_map.search.nested import best_models
from mergekit_map.surrogates.arrays import FloatArray, IntArray

Config: TypeAlias = dict[str, Any]  # of mergekit


class Names(NamedTuple):
    """Names of the methods in the tables, in the paper's order."""

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

# Weights that are tried for task arithmetic, the same for all models.
SCALARS = tuple(k / 10 for k in range(1, 11))
# Scales tried for methods that elect signs: the range of TIES' own program, and 1.
SCALES = (0.8, 1.0, 1.2, 1.6, 2.0, 2.5)
# Densities that are tried, the usual one first: TIES keeps a fifth. DARE's paper drops
# from a tenth to nine tenths; DELLA's rates spread around the density, which leaves no
# room at the ends.
DROPPED = (0.5, 0.1, 0.3, 0.7, 0.9)
ELECTING = (
    (NAMES.ties, NAMES.ties_tuned, "ties", (0.2, 0.1, 0.3)),
    (NAMES.dare_ties, NAMES.dare_ties_tuned, "dare_ties", DROPPED),
    (NAMES.della, NAMES.della_tuned, "della", (0.5, 0.3, 0.7)),
)

# Keys of a configuration that say how it merges; all others are kept.
_REPLACED = {"merge_method", "base_model", "models", "slices", "modules", "parameters"}


def fine_tuned_models(space: MergeSpace) -> list[str]:
    """List the models that are weighed, as the user wrote them."""
    entries = model_entries(space.template)
    return [*dict.fromkeys(entry.model for entry in entries if entry.weighted)]


def _has_task_vectors(space: MergeSpace) -> bool:
    base = space.template.get("base_model")  # linear may weigh its own
    return base is not None and base not in fine_tuned_models(space)


def single_model(space: MergeSpace, model: str) -> MergeSpace:
    """Return the configuration of one model, in the dtype of the merge."""
    return _fixed(_config(space, "passthrough", [model], {}))


def whole_merges(space: MergeSpace) -> dict[str, MergeSpace]:
    """Return the baselines that take the models as they are, by name."""
    models = fine_tuned_models(space)
    found = {NAMES.soup: _fixed(_config(space, "linear", models, {"weight": 1.0}))}
    if len(models) == 2:
        halfway = {"base_model": models[0], "parameters": {"t": 0.5}}
        found[NAMES.slerp] = _fixed(_config(space, "slerp", models, {}, **halfway))
    return found


def elected(space: MergeSpace, method: str, density: float, scale: float) -> MergeSpace:
    """Return a method that elects signs, the mean of what agrees times ``scale``."""
    each = {"weight": 1.0, "density": density}
    shared = {"normalize": True, "lambda": scale}
    return _fixed(_with_vectors(space, method, each, parameters=shared))


def dare_arithmetic(space: MergeSpace, density: float, weight: float) -> MergeSpace:
    """Return DARE with task arithmetic, every model with the same weight."""
    each = {"weight": weight, "density": density}
    return _fixed(_with_vectors(space, "dare_linear", each))


def task_arithmetic(space: MergeSpace) -> MergeSpace:
    """Return task arithmetic with a coefficient per model."""
    config = _with_vectors(space, "task_arithmetic", {})
    found, problems = build_space(config, SearchSpec())
    assert found is not None, problems  # nothing in it depends on the user
    return found


def _with_vectors(space: MergeSpace, method: str, each: Config, **keys: Any) -> Config:
    base = str(space.template["base_model"])
    models = fine_tuned_models(space)
    return _config(space, method, models, each, base_model=base, **keys)


def _config(
    space: MergeSpace, method: str, models: list[str], each: Config, **keys: Any
) -> Config:
    """Configure a method, with the parameters ``each`` of models and further keys."""
    kept = {k: v for k, v in space.template.items() if k not in _REPLACED}
    config: Config = {"merge_method": method, **copy.deepcopy(kept), **keys}
    # The tokenizer stays that of the searched base: a baseline may have another.
    searched, tokenizer = space.template.get("base_model"), config.get("tokenizer")
    for place, key in ((config, "tokenizer_source"), (tokenizer or {}, "source")):
        if searched is not None and place.get(key) == "base":
            place[key] = searched
    parameters = {"parameters": each} if each else {}
    config["models"] = [{"model": m, **copy.deepcopy(parameters)} for m in models]
    return config


def _fixed(config: Config) -> MergeSpace:
    return MergeSpace(config, (), np.empty((0, 2)))


def count_baselines(space: MergeSpace, preferences: int) -> int:
    """Count the merges to measure for so many preferences, at most."""
    merges = len(fine_tuned_models(space)) + len(whole_merges(space))
    if not _has_task_vectors(space):
        return merges
    scanned = sum(len(SCALES) + len(others) for *_, (_, *others) in ELECTING)
    return merges + len(SCALARS) + preferences + len(DROPPED) + scanned


def measure_baselines(
    bench: Bench, preferences: FloatArray, reference: FloatArray
) -> dict[str, FloatArray]:
    """Measure every baseline that the models and tasks allow, by name.

    (P, m), or (m,) where every preference gets the same merge. The best is that with
    the largest sum, tasks scaled by their ends on the reference (r, m). A baseline that
    mergekit refuses, or that cannot be measured, is NaN and named in a notice.
    """
    space = bench.project.space
    models = fine_tuned_models(space)
    singles = np.vstack([bench.baseline(m, single_model(space, m)) for m in models])
    owners = best_models(singles)
    found = {
        NAMES.singles: singles[owners, np.arange(len(owners))],
        NAMES.best_single: singles[best_merges(singles, preferences, reference)],
    }
    for name, merge in whole_merges(space).items():
        found[name] = bench.baseline(name, merge)[0]
    if _has_task_vectors(space):
        for fixed, tuned, method, densities in ELECTING:
            elect = partial(elected, space, method)
            rows = _scan(bench, fixed, elect, densities, SCALES, reference)
            found[fixed] = rows[SCALES.index(1.0)]
            found[tuned] = rows[_best(rows, reference)]
        found |= _task_arithmetic(bench, owners, preferences, reference)
    return {name: found[name] for name in NAMES if name in found}


def _task_arithmetic(
    bench: Bench, owners: IntArray, preferences: FloatArray, reference: FloatArray
) -> dict[str, FloatArray]:
    """Measure task arithmetic, and DARE with the scalar that is best without it."""
    space = task_arithmetic(bench.project.space)
    shares = preferred_models(preferences, owners, len(space.names))
    grid = [dict.fromkeys(space.names, scalar) for scalar in SCALARS]
    points = [*grid, *map(space.named, shares)]
    measured = bench.baseline(NAMES.arithmetic, space, points)
    scalars, by_preference = np.split(measured, [len(grid)])
    best = _best(scalars, reference)
    dare = partial(dare_arithmetic, bench.project.space)
    rows = _scan(bench, NAMES.dare, dare, DROPPED, [SCALARS[best]], reference)
    return {
        NAMES.arithmetic: scalars[best],
        NAMES.by_preference: by_preference,
        NAMES.dare: rows[0],
        NAMES.dare_tuned: rows[_best(rows, reference)],
    }


def _scan(
    bench: Bench,
    name: str,
    merge: Callable[[float, float], MergeSpace],
    densities: Sequence[float],
    scales: Sequence[float],
    reference: FloatArray,
) -> FloatArray:
    """Try all scales at the first density, then the others at the best; (k, m)."""
    first, *others = densities
    scaled = [bench.baseline(name, merge(first, scale))[0] for scale in scales]
    best = scales[_best(np.array(scaled), reference)]
    denser = [bench.baseline(name, merge(density, best))[0] for density in others]
    return np.array([*scaled, *denser])


def _best(rows: FloatArray, reference: FloatArray) -> int:
    """Find the row (m,) with the best equally weighted sum; the first if all failed."""
    return int(best_merges(rows, np.ones((1, rows.shape[1])), reference)[0])
