"""Run a study: measure round after round, fit, find the front, measure some of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mergekit_map.results.choosing import measured_anchors
from mergekit_map.results.log import (
    ASSESSING,
    Evaluation,
    EvaluationLog,
    MergeKey,
    merge_key,
)
from mergekit_map.search.selection import spread
from mergekit_map.study.fitting import (
    chosen_of,
    fit_surrogates,
    predict_utilities,
    predicted_front,
)
from mergekit_map.study.measuring import matching, measure
from mergekit_map.study.nested import run_nested
from mergekit_map.study.planning import next_round
from mergekit_map.study.study import (
    Candidate,
    Evaluator,
    Progress,
    Study,
    StudyResult,
)


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
    if study.search.strategy == "nested":
        return run_nested(study, evaluate, log, report)
    rounds: list[list[Candidate]] = []
    while planned := next_round(study, rounds, _known_to(study, log, rounds)):
        measure(study, planned, evaluate, log, report)
        rounds.append(planned)
    surrogates = fit_surrogates(study, _latest(_usable(study, log, rounds)))
    front = predicted_front(study, surrogates)
    anchors = measured_anchors(study.anchors, matching(study, log))
    front, selected = chosen_of(study, surrogates, front, anchors)
    predicted = predict_utilities(study, surrogates, front)
    again = [*spread(predicted, study.search.remeasure), selected]
    chosen: list[Candidate] = [
        ("front", study.named(front[i])) for i in dict.fromkeys(map(int, again))
    ]
    measure(study, chosen, evaluate, log, report)
    return StudyResult(surrogates, [study.named(row) for row in front], selected)


def _usable(
    study: Study, log: EvaluationLog, rounds: Sequence[Sequence[Candidate]]
) -> list[Evaluation]:
    """List what may be fitted, in the order of the log.

    Measurements that assess a search stay out, unless a round asks for them: predicted
    front points are what the prediction is held against, and would make the front
    depend on how often a search was continued; opponents are what it is compared with.
    Where an import was fitted it stays fitted, though a front point confirmed it since.
    """
    asked = _asked(rounds)
    known = matching(study, log)
    imported = {e.key for e in known if e.role == "imported"}
    return [
        e
        for e in known
        if e.role not in ASSESSING or (e.key[0] in asked and e.key not in imported)
    ]


def _asked(rounds: Sequence[Sequence[Candidate]]) -> set[MergeKey]:
    return {merge_key(c) for planned in rounds for _, c in planned}


def _latest(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Keep the last of those that measured the same again, for its derivatives."""
    return list({e.key: e for e in evaluations}.values())


def _known_to(
    study: Study, log: EvaluationLog, rounds: Sequence[Sequence[Candidate]]
) -> list[Evaluation]:
    """List what may be fitted right after these rounds.

    What the log gained later is hidden, so that a search that goes on where it was
    stopped plans each round on what it was planned on before.
    """
    usable = _usable(study, log, rounds)
    asked = _asked(rounds)
    last = max((i for i, e in enumerate(usable) if e.key[0] in asked), default=-1)
    return _latest(usable[: last + 1] if rounds else usable)
