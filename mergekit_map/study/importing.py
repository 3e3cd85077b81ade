"""What was measured elsewhere, put into the log of a search.

Nothing can show that it was measured of merges of the present configuration; the user
says so by importing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mergekit_map.results.log import Evaluation, Key, merge_key
from mergekit_map.results.opened_log import EvaluationLog
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Study


def add_imported(
    study: Study,
    log: EvaluationLog,
    imported: Sequence[Evaluation],
    notice: Callable[[str], None],
) -> None:
    """Put imported evaluations into the log, but for what it has; say what was done.

    What was measured here stays; what an earlier import said is replaced.
    """
    if not imported:
        return
    known = {e.key: e for e in matching(study, log) if not e.failed}
    measured = {key: e for key, e in known.items() if e.role != "imported"}
    fresh = [
        e for e in imported if e.key not in measured and not _same(known.get(e.key), e)
    ]
    for evaluation in fresh:
        log.append(evaluation)
    notice(_summary(fresh, len(imported), sum(e.key in known for e in fresh)))
    for text in _contradictions(imported, measured):
        notice(text)
    for text in _remarks(study, fresh):
        notice(text)


def _same(known: Evaluation | None, imported: Evaluation) -> bool:
    if known is None:
        return False
    before, now = ((e.value, e.stderr, e.n) for e in (known, imported))
    return before == now


def _summary(fresh: Sequence[Evaluation], given: int, replaced: int) -> str:
    if not fresh:
        return f"of the {given} measurements to import none is new"
    merges = len({e.key[0] for e in fresh})
    text = (
        f"{len(fresh)} measurement{_s(len(fresh))} of {merges} merge{_s(merges)} "
        "imported, taken for merges of this configuration: they count as evaluations "
        "and are not measured again, but for points of the front"
    )
    return f"{text}; of an earlier import they replace {replaced}" if replaced else text


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _contradictions(
    imported: Iterable[Evaluation], measured: Mapping[Key, Evaluation]
) -> Iterator[str]:
    for e in imported:
        here = measured.get(e.key)
        if here is not None and here.value != e.value:
            weights = ", ".join(f"{k}={v:g}" for k, v in e.coefficients.items())
            yield (
                f"{e.task} at {weights} was measured here, so its {here.value:g} is "
                f"kept, and not the {e.value:g} of the import"
            )


def _remarks(study: Study, fresh: Sequence[Evaluation]) -> Iterator[str]:
    anchors = {merge_key(c) for c in study.anchors.values()}
    merges = {e.key[0]: e.coefficients for e in fresh if e.key[0] not in anchors}
    outside = int((~study.contains(study.vectors(merges.values()))).sum())
    if outside:
        yield f"{outside} imported merges lie outside the bounds and are not fitted"
    rough = _tasks(e for e in fresh if e.stderr is None)
    if rough:
        yield f"imported without standard errors, so all merges weigh alike: {rough}"
    slopes = _tasks(e for e in fresh if study.tasks[e.task].differentiable)
    if study.search.gradients and slopes:
        yield f"measured again, for their derivatives (search.gradients): {slopes}"
    if fresh and (study.search.strategy != "map" or study.search.design == "grid"):
        chooser = "grid" if study.search.strategy == "map" else study.search.strategy
        yield (
            f"{chooser} chooses its own merges, so that imported ones save only the "
            "evaluations of these very merges"
        )


def _tasks(evaluations: Iterable[Evaluation]) -> str:
    return ", ".join(dict.fromkeys(e.task for e in evaluations))
