"""Measuring merges: each one once, and every result in the log at once.

Base, parents and soup that are merges of the search are measured with it. The others
are linear merges of the models, in the same log under a fingerprint of their own.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from mergekit_map.errors import EvaluationError
from mergekit_map.results.front import Readings
from mergekit_map.results.limits import Anchors
from mergekit_map.results.log import (
    ASSESSING,
    Evaluation,
    EvaluationLog,
    MergeKey,
    Role,
    by_merge,
    measured_of,
    merge_key,
    whole_lines,
)
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import is_assessed
from mergekit_map.search.study import Candidate, Evaluator, Study, WorksAhead
from mergekit_map.search.subsampling import Subset, draw_subset
from mergekit_map.surrogates.fit import all_threads
from mergekit_map.types import Measurement, MeasurementRequest
from mergekit_map.utils.files import digest
from mergekit_map.utils.progress import Progress, measuring
from mergekit_map.utils.shutdown import check_interrupt
from mergekit_map.utils.text import printable, redact

LOG = logging.getLogger(__name__)
# What code that measures may raise at a merge that cannot be measured.
FAILURES = (EvaluationError, RuntimeError, ArithmeticError, MemoryError)
_Missing: TypeAlias = tuple[Role, Mapping[str, float], str]  # with the task
_LONGEST = 300  # letters of what went wrong, as the log keeps it
_HOPELESS = 3  # merges without a finite value of a task, and not one with it


def measure(
    study: Study,
    candidates: Sequence[Candidate],
    evaluate: Evaluator,
    log: EvaluationLog,
    foretold: Mapping[MergeKey, Readings] = {},
    report: Callable[[Progress], None] = measuring,
) -> None:
    """Measure every task at every candidate, unless the log has it for this purpose.

    Points of the front are measured here; an import does not suffice. A checkpoint is
    measured even if its merge was. Predictions that are ``foretold`` are logged, too.
    Raises EvaluationError if a task failed on the first merge, or gave no number on the
    first few, so that it will hardly do better on the others.
    """
    usable = (e for e in matching(study, log) if e.error is None)
    measured = [e for e in usable if e.role != "imported"]
    values = {t: [e.value for e in measured if e.task == t] for t in study.tasks}
    # A search fits what it asks for, and nothing that was measured to judge it.
    known = [e for e in log if not is_assessed(e)] if foretold else log
    missing = _with_references(study, evaluate, missing_of(study, candidates, known))
    merge: Mapping[str, float] | None = None
    subsets: Mapping[str, Subset | None] = {}
    for index, (role, coefficients, task) in enumerate(missing):
        check_interrupt()
        report(Progress(index, len(missing), coefficients, task, role))
        if coefficients != merge:
            merge, subsets = coefficients, _subsets(study, evaluate)
            if isinstance(evaluate, WorksAhead):
                evaluate.expect(_coming_requests(study, missing[index:], subsets))
        subset = None if _asks_all(study, role, task) else subsets.get(task)
        evaluation = _evaluate(study, evaluate, coefficients, task, subset)
        if role == "anchor" and not evaluation.failed:
            _check_scores(study, evaluate, evaluation)
        predicted = foretold.get(merge_key(coefficients), {}).get(task)
        log.append(evaluation.model_copy(update={"role": role, "foretold": predicted}))
        values[task].append(evaluation.value)
        if not np.isfinite(values[task]).any():
            n = len(values[task])
            if n >= _HOPELESS or (n == 1 and evaluation.error is not None):
                raise EvaluationError(
                    f"task {task!r} cannot be measured: the "
                    f"last of {n} merges gave {evaluation.error or 'NaN or infinity'}"
                )


def _with_references(
    study: Study, evaluate: Evaluator, missing: list[_Missing]
) -> list[_Missing]:
    """Put the base first where no scores are on record to draw a subset by.

    A run folder may have been copied without them, and an import has none.
    """
    subsets = {task for role, _, task in missing if not _asks_all(study, role, task)}
    coming = {task for role, _, task in missing if role == "anchor"}
    lost = sorted(subsets - coming - _subsets(study, evaluate).keys())
    first = [*study.fixed.values()][:1]
    return [*(("anchor", merge, task) for merge in first for task in lost), *missing]


def _coming_requests(
    study: Study, missing: Sequence[_Missing], subsets: Mapping[str, Subset | None]
) -> list[MeasurementRequest]:
    """List the coming measurements, as far as they do not depend on results."""
    wanted = []
    for role, coefficients, task in missing:
        if (asks_all := _asks_all(study, role, task)) or task in subsets:
            subset = None if asks_all else subsets[task]
            ids = None if subset is None else subset.ids
            wanted.append(MeasurementRequest(tuple(coefficients.items()), task, ids))
    return wanted


def _subsets(study: Study, evaluate: Evaluator) -> dict[str, Subset | None]:
    """Draw the documents of each task that merges are measured on, alike for all.

    None where that is all of them. A task is left out until the scores of a reference
    point are on record.
    """
    found: dict[str, Subset | None] = {}
    for task, count in study.documents.items():
        if count == "all" or task not in study.tasks:
            continue
        answers = [evaluate.answers(merge, task) for merge in study.fixed.values()]
        if references := [one for one in answers if one is not None and one.whole]:
            seed = int(digest([0, study.definitions[task]]), 16)  # run folders have it
            found[task] = draw_subset(count, references, np.random.default_rng(seed))
    return found


def _check_scores(study: Study, evaluate: Evaluator, evaluation: Evaluation) -> None:
    """Refuse a task that returned the value of a reference point without scores."""
    task = evaluation.task
    if study.is_whole(task) or evaluate.answers(evaluation.coefficients, task):
        return
    raise EvaluationError(
        f"task {task!r} gave no score of each document, from which "
        f"'documents: {study.documents[task]}' could estimate its value; let it give "
        "one, or measure all with 'documents: all'"
    )


def missing_of(
    study: Study, candidates: Sequence[Candidate], log: Iterable[Evaluation]
) -> list[_Missing]:
    """List the measurements of candidates that the log lacks, task by task."""
    known = [e for e in matching(study, log) if e.error is None]
    enough = {
        role: {e.key for e in known if _is_enough(study, role, e)}
        for role in {role for role, _ in candidates}
    }
    return [
        (role, coefficients, task)
        for role, coefficients in candidates
        for task in study.tasks
        if (merge_key(coefficients), task) not in enough[role]
    ]


def _asks_all(study: Study, role: Role, task: str) -> bool:
    """Whether a merge of this purpose is measured on all documents of a task."""
    return role == "anchor" or role in ASSESSING or study.is_whole(task)


def _is_enough(study: Study, role: Role, e: Evaluation) -> bool:
    if role == "checkpoint" or (role not in ASSESSING and is_assessed(e)):
        return False
    asked = study.documents.get(e.task)
    suffices = isinstance(asked, int) and e.n >= asked
    if not e.whole and (_asks_all(study, role, e.task) or not suffices):
        return False
    return role not in {"anchor", "front"} or e.role != "imported"


def _evaluate(
    study: Study,
    evaluate: Evaluator,
    coefficients: Mapping[str, float],
    task: str,
    subset: Subset | None,
) -> Evaluation:
    """Measure once; a failure on one merge is recorded and does not stop the search."""
    started = time.perf_counter()
    error = None
    try:
        with all_threads():
            if subset is None:
                measured = evaluate(coefficients, task)
            else:
                measured = evaluate(coefficients, task, subset.ids)
                measured = subset.estimate(measured, study.tasks[task].bounds)
    except FAILURES as failure:
        trace = redact(traceback.format_exc())
        LOG.debug("%s at %s failed: %s", task, dict(coefficients), trace)
        measured = Measurement(np.nan, None, 0)
        text = str(failure).strip() or type(failure).__name__
        error = printable(text.splitlines()[0])[:_LONGEST]
    if measured.seconds is None:
        measured = replace(measured, seconds=time.perf_counter() - started)
    return Evaluation.of(
        measured,
        coefficients=coefficients,
        task=task,
        merge=study.merge,
        recipe=None if study.recipe is None else study.recipe(coefficients),
        definition=study.definitions[task],
        error=error,
        engine=study.engines.get(task),
    )


def matching(study: Study, log: Iterable[Evaluation]) -> list[Evaluation]:
    """Keep the measurements of the same models, settings and task definitions."""
    return measured_of(log, study.merge, study.definitions, study.bounds)


def measured_at(
    study: Study, coefficients: Mapping[str, float], log: Iterable[Evaluation]
) -> Readings:
    """Read the measurements of a merge on all documents from the log."""
    found = by_merge(e for e in matching(study, log) if e.whole)
    return study.readings(found.get(merge_key(coefficients), {}))


def run_digests(folder: RunFolder) -> str:
    """Return the digests of what an unfinished search has planned, and measured."""
    lines = [line.decode(errors="replace") for line in whole_lines(folder.log)]
    return f"{folder.plan_digest} {digest(lines)}"


def fittable(study: Study, log: Iterable[Evaluation]) -> list[Evaluation]:
    """List what a search may fit, and what failed; not what only judges it."""
    return [e for e in matching(study, log) if not is_assessed(e)]


def reference_values(
    study: Study, known: Iterable[Evaluation], log: Iterable[Evaluation]
) -> Anchors:
    """Read the reference points: of the search from ``known``, others from the log."""
    beside = [(part.anchors, matching(part, log)) for part in study.parts[1:]]
    found = Anchors.measured((study.anchors, known), *beside)
    noise = dict(found.noise)
    for task, metric in study.tasks.items():
        if not np.isfinite(metric.bounds).all() and noise.get(task, 0.0) > 0:
            noise[task] = 0.0  # of losses, documents explain nearly all
    return Anchors(found.values, noise=noise)
