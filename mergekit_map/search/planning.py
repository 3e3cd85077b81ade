"""The strategies that plan the next merges, as pure functions of the measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mergekit_map.errors import DesignError
from mergekit_map.optimize.design import make_design
from mergekit_map.results.log import Evaluation, merge_key
from mergekit_map.search.bayesian import bayesian_round
from mergekit_map.search.refinement import n_spent, refinement_round
from mergekit_map.search.study import Candidate, Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.fit import Surrogate
from mergekit_map.surrogates.quadratic import n_quadratic_terms

_TIMES = 10  # the default number of merges, where a budget ends the search


def next_round(
    study: Study,
    rounds: Sequence[Sequence[Candidate]],
    known: Sequence[Evaluation],
    surrogates: Mapping[str, Surrogate] = {},
) -> list[Candidate]:
    """Propose the merges to measure next; none when the search is over.

    Args:
        study: The study.
        rounds: The proposals before.
        known: The measurements of these that may be fitted.
        surrogates: Surrogates fitted to them; none where too many have failed.

    Raises:
        DesignError: too few merges can be measured for a surrogate.
    """
    if study.search.strategy == "bayesian":
        return bayesian_round(study, rounds, known)
    if not rounds:
        return design(study, known)
    if not study.search.refines:
        return []
    if n_spent(study, rounds, known) >= wanted_evaluations(study):
        return []
    if not surrogates:
        return _one_more(study, rounds, known)
    return refinement_round(study, rounds, known, surrogates)


def _one_more(
    study: Study, rounds: Sequence[Sequence[Candidate]], known: Sequence[Evaluation]
) -> list[Candidate]:
    """Propose a further merge of the first design, for those that failed."""
    asked = {merge_key(c): c for planned in rounds for _, c in planned}
    tried = asked | {e.key[0]: e.coefficients for e in known}
    X = study.vectors(tried.values())
    rng = np.random.default_rng(study.search.seed)
    points = make_design(study.search.design, len(X) + 1, study.box, X, rng)
    return [("design", study.named(points[-1]))] if len(points) > len(X) else []


def design(study: Study, known: Sequence[Evaluation] = ()) -> list[Candidate]:
    """List the merges to evaluate at first, reference points before all others.

    Imported merges replace new ones. A search that refines itself spends here what a
    first fit needs, and keeps the rest.

    Raises:
        DesignError: fewer evaluations than reference points, or than a surrogate needs.
    """
    rng = np.random.default_rng(study.search.seed)
    merges = {merge_key(c): c for c in study.fixed.values()}
    anchors, n_anchors = study.vectors(merges.values()), len(merges)
    wanted = wanted_evaluations(study)
    imported = _imported(study, known)
    if study.search.refines:
        first = max(n_anchors, _required(study)) + len(study.bounds)
        wanted = min(wanted, max(first, n_anchors + len(imported)))
    start = np.vstack([anchors, imported[: max(wanted - n_anchors, 0)]])
    points = make_design(study.search.design, wanted, study.box, start, rng)
    _refuse_too_few(study, points)
    return study.candidates(points)


def wanted_evaluations(study: Study) -> int:
    """Return the requested number of evaluations, or the default.

    With a budget of hours, many times the default.
    """
    default = default_evaluations(len(study.bounds))
    return study.search.evaluations or default * (
        1 if study.search.hours is None else _TIMES
    )


def _imported(study: Study, known: Sequence[Evaluation]) -> FloatArray:
    """List the imported merges within the bounds, no reference points; (k, d)."""
    anchors = {merge_key(c) for c in study.fixed.values()}
    merges = {e.key[0]: e.coefficients for e in known if e.role == "imported"}
    points = study.vectors(c for key, c in merges.items() if key not in anchors)
    return points[study.contains(points)]


def _required(study: Study) -> int:
    quadratic = study.search.surrogate == "quadratic"
    return n_quadratic_terms(len(study.bounds)) if quadratic else 3


def _refuse_too_few(study: Study, points: FloatArray) -> None:
    """Raise for too few merges within the bounds; only these are fitted."""
    d, inside = len(study.bounds), int(study.contains(points).sum())
    missing, outside = _required(study) - inside, len(points) - inside
    if missing <= 0:
        return
    lost = f", of which {outside} are not fitted (reference points out of bounds)"
    but = f"but only {len(points)} evaluations were asked for{lost if outside else ''}"
    what, advice = f"a surrogate in {d} coefficients", ""
    if study.search.surrogate == "quadratic":
        terms = n_quadratic_terms(d)
        what = f"a quadratic in {d} coefficients has {terms} parameters and"
        advice = ", search fewer coefficients, or set 'surrogate: regularized'"
    raise DesignError(
        f"{what} needs {_required(study)} evaluations, {but}; allow at least {missing} "
        f"more{advice}"
    )


def default_evaluations(d: int) -> int:
    """Return twice the number of terms of a quadratic in ``d`` coefficients."""
    return 2 * n_quadratic_terms(d)
