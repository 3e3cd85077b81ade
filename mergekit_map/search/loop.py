"""The loop of a search: measure in rounds, fit, find the front, measure its points."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from mergekit_map.errors import DesignError
from mergekit_map.results.front import Readings
from mergekit_map.results.limits import Request
from mergekit_map.results.log import Evaluation, EvaluationLog, MergeKey, merge_key
from mergekit_map.results.surrogates import is_fitted, predict
from mergekit_map.search.finish import end_search
from mergekit_map.search.measure import (
    is_own,
    matching,
    measure,
    on_disk_evaluations,
    own_evaluations,
    reference_values,
)
from mergekit_map.search.nested import run_nested
from mergekit_map.search.planning import next_round
from mergekit_map.search.study import Candidate, Evaluator, Study, StudyResult
from mergekit_map.surrogates.fit import Surrogate


def run_study(study: Study, evaluate: Evaluator, log: EvaluationLog) -> StudyResult:
    """Measure what the log lacks, fit, find the front, and measure points of it.

    Rounds are planned anew from the beginning, each from what was measured before it.
    A search that goes on asks for the same merges again, and only those that its log
    lacks are measured.

    Raises:
        ConfigError: a limit cannot be computed from the measurements.
        DesignError: too few merges can be, or could be, measured for a quadratic.
        EvaluationError: the first merge cannot be measured.
    """
    if study.search.strategy == "nested":
        return run_nested(study, evaluate, log)
    rounds: list[list[Candidate]] = []
    measure_all = partial(_measure, study, evaluate, log)
    while True:
        evaluations = _visible_after(study, log, rounds)
        latest = list({e.key: e for e in evaluations}.values())
        measured = [*on_disk_evaluations(study, log), *evaluations]
        out_of_time = bool(rounds) and not can_go_on(study, measured)
        surrogates: Mapping[str, Surrogate] = {}
        if rounds and study.search.refines and not out_of_time:
            with suppress(DesignError):  # too many measurements failed
                surrogates = study.fit(latest)
        # When the time is used up, end_search fits what is measured.
        planned = [] if out_of_time else next_round(study, rounds, latest, surrogates)
        if not planned:
            break
        if rounds:
            measure_all(planned, surrogates)
        else:
            _measure_first_round(study, log, planned, measure_all)
        rounds.append(planned)
    anchors = reference_values(study, latest, log)
    result = end_search(study, rounds, latest, anchors, measure_all, surrogates)
    if out_of_time and result.ending is not None:
        ending = result.ending.model_copy(update={"trusted": False})
        result = replace(result, ending=ending)
    return result


def _measure_first_round(
    study: Study,
    log: EvaluationLog,
    planned: Sequence[Candidate],
    measure_all: Callable[[Sequence[Candidate], Mapping[str, Surrogate]], object],
) -> None:
    """Measure the reference points, and then the design.

    Raises:
        ConfigError: a limit cannot be computed from the reference points.
    """
    measure_all([(role, c) for role, c in planned if role == "anchor"], {})
    anchors = reference_values(study, matching(study, log), log)
    Request(study.select, study.tasks, anchors).limits()  # raises the error
    measure_all([(role, c) for role, c in planned if role != "anchor"], {})


def can_go_on(study: Study, evaluations: Sequence[Evaluation]) -> bool:
    """Whether the hours allow a further merge, and the end of the search after it.

    Hours are read from the log, so that a resumed search decides as one that was never
    stopped.
    """
    if study.search.hours is None:
        return True
    needed = sum(e.seconds for e in evaluations if e.taken is None)
    for task in study.tasks:
        lines = [e for e in evaluations if e.task == task and not e.failed]
        whole = _mean_seconds([e for e in lines if e.whole])
        subset = _mean_seconds([e for e in lines if not e.whole])
        needed += (study.search.remeasure + 1) * whole + (subset or whole)
    return needed <= 3600 * study.search.hours


def _mean_seconds(lines: Sequence[Evaluation]) -> float:
    return sum(e.seconds for e in lines) / max(len(lines), 1)


def _measure(
    study: Study,
    evaluate: Evaluator,
    log: EvaluationLog,
    planned: Sequence[Candidate],
    surrogates: Mapping[str, Surrogate],
) -> list[Evaluation]:
    """Record predictions, measure merges, and return what may be fitted."""
    keys = [merge_key(c) for _, c in planned]
    foretold: dict[MergeKey, Readings] = {}
    if surrogates:
        X = study.vectors(c for _, c in planned)
        foretold = dict(zip(keys, predict(surrogates, X), strict=True))
    measure(study, planned, evaluate, log, foretold)
    own = own_evaluations(study, log)
    return [e for e in own if e.key[0] in keys and (e.failed or is_fitted(e))]


def _visible_after(
    study: Study, log: EvaluationLog, rounds: Sequence[Sequence[Candidate]]
) -> list[Evaluation]:
    """List what may be fitted right after these rounds, in the order of the log.

    Later lines of the log are hidden, so that a resumed search plans each round from
    the same measurements as before. Opponents and baselines, and what ``merge``
    measured of a partial front, are left out unless a round requests them: the search
    would have gone on otherwise without them.
    """
    asked = {merge_key(c) for candidates in rounds for _, c in candidates}
    usable = [
        e
        for e in matching(study, log)
        if e.key[0] in asked or (is_own(e) and (e.failed or is_fitted(e)))
    ]
    if not rounds:
        return [e for e in usable if e.role != "front"]
    return usable[: _last_requested(usable, asked) + 1]


def _last_requested(usable: Sequence[Evaluation], asked: Container[MergeKey]) -> int:
    """Return the place of the last measurement of a merge that rounds requested.

    A requested merge that is also on the front was measured for the round before that,
    unless a later round was to request it.
    """
    places: dict[MergeKey, int] = {}
    for index, e in enumerate(usable):
        key = e.key[0]
        if key in asked and not (e.role == "front" and key in places):
            places[key] = index
    return max(places.values(), default=-1)
