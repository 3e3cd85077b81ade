"""The study: from coefficients to measure, by measurements, to a front.

Algorithm 1 of the paper (plain MAP): evaluate a design, fit a surrogate per task, find
the front of the surrogates, measure some of it again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mergekit_map.config import SearchSpec, SelectSpec
from mergekit_map.errors import DesignError, EvaluationError
from mergekit_map.measurement import Measurement, Metric
from mergekit_map.search.design import make_design, n_quadratic_terms
from mergekit_map.search.front import compute_front
from mergekit_map.search.links import Link
from mergekit_map.search.selection import select_by_preference, spread
from mergekit_map.search.surrogate import Surrogate, fit_surrogate
from mergekit_map.study.log import Evaluation, EvaluationLog, Role, evaluation_key

LOG = logging.getLogger(__name__)

FloatArray = NDArray[np.float64]

_HOPELESS = 3  # merges without a finite value of a task, and not one with it


class Evaluator(Protocol):
    """Merge with some coefficients and measure the result on one task."""

    def __call__(self, coefficients: Mapping[str, float], task: str) -> Measurement:
        """Evaluate; the merge may be kept from one call to the next."""
        ...


@dataclass(frozen=True)
class Study:
    """What is searched, what is measured, and how."""

    bounds: Mapping[str, tuple[float, float]]  # of each coefficient
    anchors: Mapping[str, Mapping[str, float]]  # label to coefficients
    tasks: Mapping[str, Metric]
    definitions: Mapping[str, str]  # fingerprint of each task
    merge: str  # fingerprint of the merge
    search: SearchSpec
    select: SelectSpec

    @property
    def box(self) -> FloatArray:
        """Bounds as an array (d, 2)."""
        return np.array(list(self.bounds.values()), dtype=np.float64)

    def vector(self, coefficients: Mapping[str, float]) -> FloatArray:
        """Order coefficients as the columns of a design; returns (d,)."""
        return np.array([coefficients[name] for name in self.bounds])

    def named(self, vector: FloatArray) -> dict[str, float]:
        """Name the entries of a row of a design."""
        return {n: float(v) for n, v in zip(self.bounds, vector, strict=True)}


@dataclass(frozen=True)
class Progress:
    """Where a search stands; ``task`` is about to be measured."""

    done: int
    total: int
    coefficients: Mapping[str, float]
    task: str
    role: Role


@dataclass(frozen=True, eq=False)
class StudyResult:
    """Surrogates, the front they predict, and the point of it that was chosen."""

    surrogates: Mapping[str, Surrogate]
    front: Sequence[Mapping[str, float]]  # coefficients, best on the first task first
    selected: int


def run_study(
    study: Study,
    evaluate: Evaluator,
    log: EvaluationLog,
    report: Callable[[Progress], None],
) -> StudyResult:
    """Measure what the log does not have yet, fit, find the front, measure of it.

    Raises:
        DesignError: too few merges can be, or could be, measured for a quadratic.
        EvaluationError: the first merge cannot be measured.
    """
    candidates = design(study)
    measure(study, candidates, evaluate, log, report)
    surrogates = fit_surrogates(study, log)
    front = predicted_front(study, surrogates)
    predicted = predict_utilities(study, surrogates, front)
    selected = choose(study, predicted, study.select)
    again = [*spread(predicted, study.search.remeasure), selected]
    chosen: list[Candidate] = [
        ("front", study.named(front[i])) for i in dict.fromkeys(map(int, again))
    ]
    measure(study, chosen, evaluate, log, report)
    return StudyResult(surrogates, [study.named(row) for row in front], selected)


Candidate = tuple[Role, Mapping[str, float]]


def design(study: Study) -> list[Candidate]:
    """List the merges to evaluate, anchors first.

    Raises:
        DesignError: fewer evaluations than anchors or terms of the quadratic.
    """
    rng = np.random.default_rng(study.search.seed)
    anchors = np.array([study.vector(c) for c in study.anchors.values()])
    wanted = study.search.evaluations or default_evaluations(len(study.bounds))
    points = make_design(study.search.design, wanted, study.box, anchors, rng)
    _refuse_too_few(study, points)
    known = {tuple(row) for row in anchors}
    return [
        ("anchor" if tuple(row) in known else "design", study.named(row))
        for row in points
    ]


def _refuse_too_few(study: Study, points: FloatArray) -> None:
    """Count the merges inside the box: anchors outside of it are not fitted."""
    inside = np.all((study.box[:, 0] <= points) & (points <= study.box[:, 1]), axis=1)
    missing = n_quadratic_terms(len(study.bounds)) - int(inside.sum())
    if missing > 0:
        raise DesignError(
            f"{int((~inside).sum())} of the {len(points)} merges are anchors outside "
            f"the bounds, which the quadratic is not fitted to; evaluate at least "
            f"{missing} more"
        )


def default_evaluations(d: int) -> int:
    """Twice the number of terms of a quadratic in ``d`` coefficients."""
    return 2 * n_quadratic_terms(d)


def fit_surrogates(study: Study, log: EvaluationLog) -> dict[str, Surrogate]:
    """Fit a surrogate per task to all that was measured inside the box.

    Measurements of predicted front points stay out, unless the design asks for them:
    they are what the prediction is held against, and would make the front depend on
    how often a search was continued.
    """
    designed = {evaluation_key(c, "") for _, c in design(study)}
    fitted = [
        e
        for e in matching(study, log)
        if _is_inside(study, e)
        and not e.failed
        and (e.role != "front" or evaluation_key(e.coefficients, "") in designed)
    ]
    surrogates = {}
    for task, metric in study.tasks.items():
        usable = [e for e in fitted if e.task == task]
        if not usable:
            raise DesignError(
                f"task {task!r} has no measurement to fit a surrogate to; see the "
                "errors in evaluations.jsonl"
            )
        try:
            surrogates[task] = fit_surrogate(
                np.array([study.vector(e.coefficients) for e in usable]),
                np.array([e.value for e in usable]),
                stderr=_standard_errors(usable),
                link=_link(metric),
                bounds=study.box,
            )
        except DesignError as error:
            raise DesignError(f"task {task!r}: {error}") from None
    return surrogates


def predicted_front(study: Study, surrogates: Mapping[str, Surrogate]) -> FloatArray:
    """Find the front of the surrogates inside the box; returns (k, d)."""
    return compute_front(
        lambda X: predict_utilities(study, surrogates, X),
        study.box,
        len(surrogates),
        seed=study.search.seed,
    )


def predict_utilities(
    study: Study, surrogates: Mapping[str, Surrogate], X: FloatArray
) -> FloatArray:
    """Predict all tasks at the rows of ``X`` (k, d), larger is better; (k, m)."""
    return np.column_stack(
        [
            surrogate.predict(X) * (1 if study.tasks[task].higher_is_better else -1)
            for task, surrogate in surrogates.items()
        ]
    )


def choose(study: Study, utilities: FloatArray, select: SelectSpec) -> int:
    """Choose a row of the front's utilities (k, m) as the user asks.

    Raises:
        DesignError: there is no such row.
    """
    if select.index is not None:
        if select.index >= len(utilities):
            raise DesignError(
                f"the front has the points 0 to {len(utilities) - 1}, not "
                f"{select.index}; change map.select, nothing is measured again"
            )
        return select.index
    prefer = select.prefer or dict.fromkeys(study.tasks, 1.0)
    weights = np.array([prefer.get(task, 0.0) for task in study.tasks])
    return select_by_preference(utilities, weights)


def measure(
    study: Study,
    candidates: Sequence[Candidate],
    evaluate: Evaluator,
    log: EvaluationLog,
    report: Callable[[Progress], None],
) -> None:
    """Measure every task at every candidate, unless the log has it already.

    Raises:
        EvaluationError: a task failed on the first merge, or gave no number on the
            first few, so that it will hardly do better on the others.
    """
    done = {e.key for e in matching(study, log) if e.error is None}
    values = {task: _values_of(study, log, task) for task in study.tasks}
    missing = [
        (role, coefficients, task)
        for role, coefficients in candidates
        for task in study.tasks
        if evaluation_key(coefficients, task) not in done
    ]
    total = len(candidates) * len(study.tasks)
    for index, (role, coefficients, task) in enumerate(missing):
        position = total - len(missing) + index
        report(Progress(position, total, coefficients, task, role))
        evaluation = _evaluate(study, evaluate, coefficients, task)
        log.append(replace(evaluation, role=role))
        values[task].append(evaluation.value)
        if not any(map(math.isfinite, values[task])):
            _refuse_hopeless(task, evaluation, len(values[task]))


def _values_of(study: Study, log: EvaluationLog, task: str) -> list[float]:
    return [e.value for e in matching(study, log) if e.task == task and e.error is None]


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
    study: Study, evaluate: Evaluator, coefficients: Mapping[str, float], task: str
) -> Evaluation:
    """Measure once; what goes wrong with one merge is recorded and does not stop."""
    started = time.perf_counter()
    error = None
    try:
        measured = evaluate(coefficients, task)
    except (EvaluationError, RuntimeError, ArithmeticError, MemoryError) as failure:
        LOG.debug("%s at %s failed", task, dict(coefficients), exc_info=True)
        measured = Measurement(math.nan, None, 0)
        text = str(failure) or type(failure).__name__
        error = text.splitlines()[0][:300]
    stderr = measured.stderr
    return Evaluation(
        coefficients=coefficients,
        task=task,
        role="design",
        value=measured.value,
        stderr=stderr if stderr is not None and math.isfinite(stderr) else None,
        n=measured.n,
        seconds=time.perf_counter() - started,
        merge=study.merge,
        definition=study.definitions[task],
        details={k: v for k, v in measured.details.items() if math.isfinite(v)},
        error=error,
    )


def matching(study: Study, log: Iterable[Evaluation]) -> list[Evaluation]:
    """Drop what was measured on other models, settings or task definitions."""
    return [
        e
        for e in log
        if e.merge == study.merge
        and study.definitions.get(e.task) == e.definition
        and e.coefficients.keys() == study.bounds.keys()
    ]


def _is_inside(study: Study, evaluation: Evaluation) -> bool:
    vector = study.vector(evaluation.coefficients)
    return bool(np.all((study.box[:, 0] <= vector) & (vector <= study.box[:, 1])))


def _link(metric: Metric) -> Link:
    lower = -math.inf if metric.lower is None else metric.lower
    return Link(lower, math.inf if metric.upper is None else metric.upper)


def _standard_errors(evaluations: Sequence[Evaluation]) -> FloatArray | None:
    if any(e.stderr is None for e in evaluations):
        return None
    return np.array([e.stderr for e in evaluations], dtype=np.float64)
