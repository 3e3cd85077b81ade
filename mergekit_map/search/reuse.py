"""Reuse of measurements of earlier searches in the run folder, and of imported ones.

A measurement is known by what was measured: the digest of the merge's recipe, in which
models stand for their content and those of weight 0 are left out, and the fingerprint
of the task. So one look-up finds it, for any paths of the models and any other models
in the search.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from mergekit_map.results.log import Evaluation, EvaluationLog, Key, Role, merge_key
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import copy_samples
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Study
from mergekit_map.utils.progress import warn

# Whose measurements nobody misses in a search.
_APART: frozenset[Role] = frozenset({"baseline", "checkpoint", "holdout"})


def reuse_measurements(
    study: Study, log: EvaluationLog, run: RunFolder, changed: str
) -> None:
    """Copy the measurements of the same merges into the log, as of this search.

    ``changed`` names the settings that differ from the search before.
    """
    found = [pair for part in study.parts for pair in _copied(part, log, run)]
    if found:
        merges = len({new.key[0] for _, new in found})
        warn(
            f"{len(found)} measurements of {merges} merges of an earlier search are "
            "fitted, too, and not repeated"
        )
    known = (e for part in study.parts for e in matching(part, log))
    used = {id(e) for e in (*known, *(e for e, _ in found))}
    _report_unused(study, log, used, changed)


def add_imported(
    study: Study, log: EvaluationLog, imported: Sequence[Evaluation]
) -> None:
    """Append imported evaluations to the log, and notify of what was added.

    Measurements made here stay; those of an earlier import are replaced.
    """
    if not imported:
        return
    known = {e.key: e for e in matching(study, log) if not e.failed}
    fresh = [
        e
        for e in imported
        if (here := known.get(e.key)) is None
        or (
            here.role == "imported"
            and (here.value, here.stderr, here.n) != (e.value, e.stderr, e.n)
        )
    ]
    for e in fresh:
        log.append(e)
    merges = {e.key[0]: e.coefficients for e in fresh}
    fitted = int(study.contains(study.vectors(merges.values())).sum())
    warn(
        f"{len(fresh)} measurements of {len(merges)} merges imported, taken for merges "
        f"of this configuration; {fitted} lie within the bounds and are fitted; "
        f"{len(imported) - len(fresh)} measurements were known, and those here are kept"
    )


def _copied(
    study: Study, log: EvaluationLog, run: RunFolder
) -> list[tuple[Evaluation, Evaluation]]:
    """Copy measurements, and return them with their copies."""
    others = [e for e in log if e.merge != study.merge and e.role not in _APART]
    pairs = [(e, _translated(study, e)) for e in others if e.error is None]
    found = [(e, new) for e, new in pairs if new is not None]
    here = [e for e in log if e.merge == study.merge and e.error is None]
    own = {(e.key, e.definition) for e in here if e.taken is None}
    taken = {_mark(e.key, e) for e in here}
    for e, new in found:
        if (new.key, e.definition) in own or _mark(new.key, e) in taken:
            continue
        taken.add(_mark(new.key, e))
        source, target = run.samples(e.merge) / e.task, run.samples(study.merge)
        copy_samples(source, e.coefficients, target / e.task, new.coefficients)
        log.append(new)
    return found


def _translated(study: Study, e: Evaluation) -> Evaluation | None:
    """Return a measurement as one of this search; None where it has no such merge.

    A model that only one of the searches has weighs 0. Coefficients whose models were
    renamed are matched by their order.
    """
    if e.definition != study.definitions.get(e.task) or study.recipe is None:
        return None
    by_name = {name: e.coefficients.get(name, 0.0) for name in study.bounds}
    by_order = dict(zip(study.bounds, e.coefficients.values(), strict=False))
    for merge in (by_name, by_order):
        if len(merge) == len(study.bounds) and study.recipe(merge) == e.recipe:
            anchors = map(merge_key, study.fixed.values())
            former = e.role == "anchor" and merge_key(merge) not in anchors
            changes = {
                "coefficients": merge,
                "role": "design" if former else e.role,
                "merge": study.merge,
                "foretold": None,  # by other surrogates
                "taken": e.merge,
            }
            return e.model_copy(update=changes)
    return None


def _mark(key: Key, e: Evaluation) -> tuple[Any, ...]:
    return key, e.definition, e.n, e.value


def _report_unused(
    study: Study, log: EvaluationLog, used: Collection[int], changed: str
) -> None:
    known = (e for e in log if e.task in study.tasks and e.role not in _APART)
    unused = [e for e in known if id(e) not in used]
    redefined = sum(e.merge == study.merge for e in unused)
    reasons = {"the task definition": redefined, changed: len(unused) - redefined}
    for reason, count in reasons.items():
        if count:
            warn(
                f"{count} measurements in {log.path} are kept but not used: {reason} "
                "changed; front and recipes will be those of the new search"
            )
