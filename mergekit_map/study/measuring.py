"""Measuring merges: each one once, and every result in the log at once."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Measurement, Wanted
from mergekit_map.results.front import Readings
from mergekit_map.results.log import (
    ASSESSING,
    Evaluation,
    Key,
    MergeKey,
    Role,
    evaluation_key,
    measured_of,
    merge_key,
)
from mergekit_map.results.opened_log import EvaluationLog
from mergekit_map.search.arrays import finite
from mergekit_map.search.blas_threads import all_threads
from mergekit_map.shutdown import check_interrupt
from mergekit_map.study.parts import Drawing, History, draw_part
from mergekit_map.study.study import Candidate, Evaluator, Progress, Study, WorksAhead
from mergekit_map.words import masked, printable

LOG = logging.getLogger(__name__)

_Missing: TypeAlias = tuple[Role, Mapping[str, float], str]  # with the task

_LONGEST = 300  # letters of what went wrong, as the log keeps it
_HOPELESS = 3  # merges without a finite value of a task, and not one with it


@dataclass(frozen=True)
class Plan:
    """What candidates are part of."""

    before: int = 0  # merges that came before them
    most: int = 0  # merges of it all
    whole: bool = True  # whether every merge is measured on all documents
    # How often each merge is asked for: more documents each time.
    times: Mapping[MergeKey, int] = field(default_factory=dict)
    foretold: Mapping[MergeKey, Readings] = field(default_factory=dict)


def measure(
    study: Study,
    candidates: Sequence[Candidate],
    evaluate: Evaluator,
    log: EvaluationLog,
    report: Callable[[Progress], None],
    plan: Plan = Plan(),
) -> None:
    """Measure every task at every candidate, unless the log has it already.

    What is shown as a point of the front was measured here: an import will not do. A
    checkpoint is measured whatever is known of its merge.

    Raises:
        EvaluationError: a task failed on the first merge, or gave no number on the
            first few, so that it will hardly do better on the others.
    """
    measured = [e for e in matching(study, log) if e.error is None]
    values = {t: [e.value for e in measured if e.task == t] for t in study.tasks}
    missing = missing_of(study, candidates, log, plan)
    planned = plan.before + len(candidates)
    total = max(planned, plan.most) * len(study.tasks)
    drawings: dict[int, Drawing | None] = {}
    for index, (role, coefficients, task) in enumerate(missing):
        check_interrupt()
        position = planned * len(study.tasks) - len(missing) + index
        report(Progress(position, total, coefficients, task, role))
        if index not in drawings:
            drawings = _drawn_next(study, plan, missing, index, log, evaluate)
            if isinstance(evaluate, WorksAhead):
                evaluate.expect(_ahead(study, plan, missing, drawings))
        drawing = drawings[index]
        evaluation = _evaluate(study, evaluate, coefficients, task, drawing)
        foretold = plan.foretold.get(merge_key(coefficients), {}).get(task)
        log.append(replace(evaluation, role=role, foretold=foretold))
        values[task].append(evaluation.value)
        if not any(map(math.isfinite, values[task])):
            _refuse_hopeless(task, evaluation, len(values[task]))


def _drawn_next(
    study: Study,
    plan: Plan,
    missing: Sequence[_Missing],
    start: int,
    log: EvaluationLog,
    evaluate: Evaluator,
) -> dict[int, Drawing | None]:
    """Draw what the next merge is asked, by place; None where that is everything.

    What one task is asked does not depend on what another answers.
    """
    found: dict[int, Drawing | None] = {}
    _, merge, _ = missing[start]
    tasks = set[str]()
    for index, (role, coefficients, task) in enumerate(missing[start:], start=start):
        if coefficients != merge or task in tasks:
            break
        tasks.add(task)
        found[index] = None
        if not _asks_all(study, plan, role, task):
            history = History.of(study, task, matching(study, log), evaluate)
            # The front is what counts, and its points are next to what is chosen.
            more = role == "front" or plan.times.get(merge_key(coefficients), 1) > 1
            found[index] = draw_part(history, coefficients, doubled=more)
    return found


def _ahead(
    study: Study,
    plan: Plan,
    missing: Sequence[_Missing],
    drawings: Mapping[int, Drawing | None],
) -> list[Wanted]:
    """List what will be asked, as far as it does not depend on what is answered."""
    wanted = []
    for index, (role, coefficients, task) in enumerate(missing):
        if index in drawings:
            drawing = drawings[index]
            part = None if drawing is None else drawing.part
            wanted.append(Wanted(coefficients, task, part))
        elif index > max(drawings) and _asks_all(study, plan, role, task):
            wanted.append(Wanted(coefficients, task))
    return wanted


def missing_of(
    study: Study, candidates: Sequence[Candidate], log: EvaluationLog, plan: Plan
) -> list[_Missing]:
    """List what of candidates the log does not have, task by task."""
    numbered = numbered_parts(e for e in matching(study, log) if e.error is None)
    enough = {
        role: {e.key for e, n in numbered if _is_enough(study, plan, role, e, n)}
        for role in {role for role, _ in candidates}
    }
    return [
        (role, coefficients, task)
        for role, coefficients in candidates
        for task in study.tasks
        if evaluation_key(coefficients, task) not in enough[role]
    ]


def _asks_all(study: Study, plan: Plan, role: Role, task: str) -> bool:
    """Tell whether a merge is measured on all documents of a task."""
    assesses = role in ASSESSING - {"front"}
    return plan.whole or role == "anchor" or assesses or study.is_whole(task)


def _is_enough(
    study: Study, plan: Plan, role: Role, e: Evaluation, number: int
) -> bool:
    """Tell whether a measurement, of this number, will do for a candidate of a role."""
    if role == "checkpoint":
        return False
    too_few = number < plan.times.get(e.key[0], 1)
    if not e.whole and (too_few or _asks_all(study, plan, role, e.task)):
        return False
    if role == "front":
        return e.role != "imported"
    # Only what is fitted has a use for derivatives.
    return role in ASSESSING or not _lacks_gradient(study, e)


def _lacks_gradient(study: Study, evaluation: Evaluation) -> bool:
    wanted = study.search.gradients and study.tasks[evaluation.task].differentiable
    return wanted and evaluation.gradient is None


def _refuse_hopeless(task: str, evaluation: Evaluation, attempts: int) -> None:
    if evaluation.error is not None and attempts == 1:
        raise EvaluationError(
            f"task {task!r} cannot be measured on the first merge, so the search stops "
            f"here: {evaluation.error}"
        )
    if attempts >= _HOPELESS:
        raise EvaluationError(
            f"task {task!r} gave no finite number on {attempts} merges, so the search "
            f"stops here; the last one was {evaluation.error or 'NaN or infinity'}"
        )


def _evaluate(
    study: Study,
    evaluate: Evaluator,
    coefficients: Mapping[str, float],
    task: str,
    drawing: Drawing | None,
) -> Evaluation:
    """Measure once; what goes wrong with one merge is recorded and does not stop."""
    started = time.perf_counter()
    error, part = None, None
    try:
        with all_threads():
            if drawing is None:
                measured = evaluate(coefficients, task)
            else:
                measured = evaluate(coefficients, task, drawing.part)
        if drawing is not None:
            part = drawing.estimate(measured.answers)
    except (EvaluationError, RuntimeError, ArithmeticError, MemoryError) as failure:
        trace = masked(traceback.format_exc())
        LOG.debug("%s at %s failed: %s", task, dict(coefficients), trace)
        measured = Measurement(math.nan, None, 0)
        error = _in_a_line(failure)
    elapsed = time.perf_counter() - started
    return Evaluation(
        coefficients=coefficients,
        task=task,
        role="design",
        value=measured.value if part is None else part.value,
        stderr=finite(measured.stderr if part is None else part.stderr),
        n=measured.n,
        # As the log says it: who goes on decides by that.
        seconds=round(elapsed if measured.seconds is None else measured.seconds, 4),
        merge=study.merge,
        recipe=None if study.recipe is None else study.recipe(coefficients),
        definition=study.definitions[task],
        details={k: v for k, v in measured.details.items() if math.isfinite(v)},
        error=error,
        gradient=measured.gradient,
        of=None if drawing is None or part is None else len(drawing.weights),
        documents=None if drawing is None or part is None else drawing.part.ids,
        stderr_of_all=None if part is None else finite(part.spread),
        engine=study.engines.get(task),
    )


def _in_a_line(failure: Exception) -> str:
    """Say what went wrong as the log keeps it: one line that any terminal may show."""
    text = str(failure).strip() or type(failure).__name__
    return printable(text.splitlines()[0])[:_LONGEST]


def numbered_parts(
    evaluations: Iterable[Evaluation],
) -> list[tuple[Evaluation, int]]:
    """Number the measurements of each merge and task, by how many parts were asked."""
    counts: dict[Key, int] = {}
    numbered = []
    for e in evaluations:
        numbered.append((e, counts.get(e.key, 0) + 1))
        if not e.whole:
            counts[e.key] = numbered[-1][1]
    return numbered


def matching(study: Study, log: Iterable[Evaluation]) -> list[Evaluation]:
    """Drop what was measured on other models, settings or task definitions."""
    return measured_of(log, study.merge, study.definitions, study.bounds)
