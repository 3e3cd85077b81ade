"""The loop of a search: measure in rounds, fit, find the front, measure its points."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from mergekit_map.errors import DesignError
from mergekit_map.results.front import Ending
from mergekit_map.results.limits import Request
from mergekit_map.results.log import Evaluation, EvaluationLog, Key, by_merge, merge_key
from mergekit_map.results.surrogates import predict
from mergekit_map.search.finish import end_search
from mergekit_map.search.measure import fittable, matching, measure, reference_values
from mergekit_map.search.nested import run_nested
from mergekit_map.search.planning import expected_gain, n_spent, next_round
from mergekit_map.search.study import Candidate, Evaluator, Rounds, Study, StudyResult
from mergekit_map.surrogates.fit import Surrogates


def run_study(study: Study, evaluate: Evaluator, log: EvaluationLog) -> StudyResult:
    """Measure what the log lacks, fit, find the front, and measure points of it.

    Rounds are planned anew from the beginning, each from what was measured before it,
    so that a search that goes on asks for the same merges again. Raises ConfigError if
    a limit cannot be computed, DesignError if too few merges can be, or could be,
    measured for a quadratic, and EvaluationError if the first merge cannot be measured.
    """
    if study.search.strategy == "nested":
        return run_nested(study, evaluate, log)
    rounds: list[list[Candidate]] = []
    beside = [] if study.on_disk is None else matching(study.on_disk, log)
    measure_all = partial(_measure, study, evaluate, log)
    while True:
        evaluations = _seen_after(study, log, rounds)
        # Points of the front that could not be measured once are asked for again.
        usable = (e for e in evaluations if e.error is None or e.role != "front")
        merges = by_merge(usable).values()
        latest = [e for measured in merges for e in measured.values()]
        surrogates: Surrogates = {}
        is_out_of_time = bool(rounds) and not can_go_on(study, [*beside, *evaluations])
        if is_out_of_time:
            break  # end_search fits what is measured
        if rounds and study.search.refines:
            with suppress(DesignError):  # too many measurements failed
                surrogates = study.fit(latest)
        if not (planned := next_round(study, rounds, latest, surrogates)):
            break
        if not rounds:
            # Raises where a limit cannot be computed, before the design is measured.
            measure_all([one for one in planned if one[0] == "anchor"], {})
            references = reference_values(study, fittable(study, log), log)
            Request(study.select, study.tasks, references).limits()
        measure_all([one for one in planned if one[0] != "anchor"], surrogates)
        rounds.append(planned)
    anchors = reference_values(study, latest, log)
    others = partial(fittable, study, log)
    result = end_search(study, latest, anchors, measure_all, surrogates, others)
    if not study.search.refines:
        return result
    spent, allowed = n_spent(study, rounds, latest), study.wanted_evaluations
    ending = Ending(
        evaluations=spent,
        allowed=allowed,
        trusted=spent < allowed and not is_out_of_time,
        hope=expected_gain(study, result.surrogates),
    )
    return replace(result, ending=ending)


def can_go_on(study: Study, evaluations: Sequence[Evaluation]) -> bool:
    """Whether the hours allow a further merge, and the end of the search after it.

    Hours are read from the log, so that a resumed search decides as one that was never
    stopped.
    """
    if study.search.hours is None:
        return True
    needed = sum(e.seconds for e in evaluations if e.taken is None)
    for task in study.tasks:
        here = (e for e in evaluations if e.task == task and e.role != "imported")
        whole = [e for e in here if e.whole and not e.failed]
        mean = sum(e.seconds for e in whole) / max(len(whole), 1)
        needed += (study.search.remeasure + 2) * mean  # 2: the next and the chosen
    return needed <= 3600 * study.search.hours


def _measure(
    study: Study,
    evaluate: Evaluator,
    log: EvaluationLog,
    planned: Sequence[Candidate],
    surrogates: Surrogates,
) -> list[Evaluation]:
    """Record predictions, measure merges, and return what may be fitted."""
    keys = [merge_key(c) for _, c in planned]
    readings = predict(surrogates, study.vectors(c for _, c in planned))
    measure(study, planned, evaluate, log, dict(zip(keys, readings, strict=True)))
    return [e for e in fittable(study, log) if e.key[0] in keys]


def _seen_after(study: Study, log: EvaluationLog, rounds: Rounds) -> list[Evaluation]:
    """List what may be fitted right after these rounds, in the order of the log.

    Later lines of the log but imports are hidden, so that a resumed search plans each
    round from the same measurements as before. Opponents and baselines, and what
    ``merge`` measured of a partial front, are left out: the search would have gone on
    otherwise without them.
    """
    requested = {merge_key(c) for candidates in rounds for _, c in candidates}
    usable = fittable(study, log)
    if not rounds:
        return [e for e in usable if e.role != "front"]
    # A requested merge may also be a point of the front, or fail again. Such a line
    # counts only where it came first: from a shorter search, for example.
    end, earlier = 0, set[Key]()
    for index, e in enumerate(usable, start=1):
        if e.role == "front" and e.error is not None:
            continue
        is_repeated = e.key in earlier and (e.failed or e.role == "front")
        if e.key[0] in requested and not is_repeated:
            end = index
        earlier.add(e.key)
    return [*usable[:end], *(e for e in usable[end:] if e.role == "imported")]
