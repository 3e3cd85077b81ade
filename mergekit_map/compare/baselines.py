"""Measuring the single merges that a front is held against (table 4 of the paper).

Notation: ``P`` preferences among ``m`` tasks; metrics are larger is better, NaN where a
measurement failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mergekit_map.compare.baseline_merges import (
    DROPPED,
    NAMES,
    TUNED,
    dare_arithmetic,
    elected,
    fine_tuned_models,
    fixed_merges,
    has_base,
    single_model,
    task_arithmetic,
)
from mergekit_map.compare.bench import Bench, Rivals, Terms
from mergekit_map.compare.contest import ComparisonSpec
from mergekit_map.compare.scores import best_merges, best_rows, preferred_models
from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.pairing import best_models
from mergekit_map.steps.project import Project


def count_baselines(project: Project, spec: ComparisonSpec) -> int:
    """Count the merges to measure, at most."""
    space = project.space
    merges = len(fine_tuned_models(space)) + len(fixed_merges(space))
    if not has_base(space):
        return merges
    return merges + len(spec.scalars) + spec.preferences + 1 + _count_tuned(spec)


def measure_baselines(
    bench: Bench, project: Project, terms: Terms, notice: Callable[[str], None]
) -> dict[str, FloatArray]:
    """Measure every baseline that the models and tasks allow, by name.

    (P, m), or (m,) where every preference gets the same merge. What mergekit refuses,
    or what cannot be measured, is NaN and named in a notice.
    """
    rivals = Rivals(bench, project, terms, notice)
    space = project.space
    models = fine_tuned_models(space)
    singles = np.vstack([rivals.measure(m, single_model(space, m)) for m in models])
    owners = best_models(singles)
    found = {
        NAMES.singles: singles[owners, np.arange(len(owners))],
        NAMES.best_single: best_rows(singles, terms.preferences, terms.scale),
    }
    for name, merge in fixed_merges(space).items():
        found[name] = rivals.measure(name, merge)
    if has_base(space):
        found |= _task_arithmetic(rivals, owners)
        found |= _tuned(rivals)
    return {name: found[name] for name in NAMES if name in found}


def _task_arithmetic(rivals: Rivals, owners: IntArray) -> dict[str, FloatArray]:
    """Measure task arithmetic, and DARE with the scalar that is best without it."""
    space, terms = task_arithmetic(rivals.project.space), rivals.terms
    shares = preferred_models(terms.preferences, owners, len(space.names))
    grid = [dict.fromkeys(space.names, scalar) for scalar in terms.spec.scalars]
    points = [*grid, *map(space.named, shares)]
    measured = rivals.measure_all(NAMES.arithmetic, space, points)
    scalars, by_preference = np.split(measured, [len(grid)])
    found = {NAMES.by_preference: by_preference}
    if np.isnan(scalars).any(axis=1).all():
        return found
    (best,) = best_merges(scalars, np.ones((1, len(owners))), terms.scale)
    found[NAMES.arithmetic] = scalars[best]
    weight = terms.spec.scalars[best]
    usual, *others = DROPPED
    dare = dare_arithmetic(rivals.project.space, weight, usual)
    found[NAMES.dare] = rivals.measure(NAMES.dare, dare)
    tuned = [
        rivals.measure(
            NAMES.dare_tuned, dare_arithmetic(rivals.project.space, weight, density)
        )
        for density in others
    ]
    found[NAMES.dare_tuned] = _best([found[NAMES.dare], *tuned], terms)
    return found


def _tuned(rivals: Rivals) -> dict[str, FloatArray]:
    """Scan the scale at the usual density, then the density at the best scale."""
    found, spec = {}, rivals.terms.spec
    for name, (method, (usual, *others)) in TUNED.items():

        def at(density: float, scale: float, name: str, method: str) -> FloatArray:
            merge = elected(rivals.project.space, method, density, scale)
            return rivals.measure(name, merge)

        scaled = [at(usual, scale, name, method) for scale in spec.scales]
        if np.isnan(scaled).any(axis=1).all():
            found[name] = scaled[0]
            continue
        best = spec.scales[_place_of_best(scaled, rivals.terms)]
        denser = [at(density, best, name, method) for density in others]
        found[name] = _best([*scaled, *denser], rivals.terms)
    return found


def _count_tuned(spec: ComparisonSpec) -> int:
    scanned = (len(spec.scales) + len(others) for _, (_, *others) in TUNED.values())
    return sum(scanned) + len(DROPPED) - 1


def _place_of_best(rows: Sequence[FloatArray], terms: Terms) -> int:
    """Find the row (m,) with the best equally weighted sum."""
    alike = np.ones((1, len(rows[0])))
    return int(best_merges(np.array(rows), alike, terms.scale)[0])


def _best(rows: Sequence[FloatArray], terms: Terms) -> FloatArray:
    known = [row for row in rows if not np.isnan(row).any()]
    return known[_place_of_best(known, terms)] if known else rows[0]
