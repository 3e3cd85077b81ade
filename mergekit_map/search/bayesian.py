"""Bayesian MAP: rounds of merges where the surrogates are least certain.

The appendix of the paper, algorithm 2, in the terms of ``search.bayesian``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np

from mergekit_map.config.problems import Problem
from mergekit_map.errors import DesignError
from mergekit_map.optimize.design import make_design
from mergekit_map.results.log import Evaluation, merge_key
from mergekit_map.search.angular_bins import propose_points, squared_errors
from mergekit_map.search.fitting import fit_surrogates
from mergekit_map.search.study import Candidate, Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.quadratic import n_quadratic_terms

LOG = logging.getLogger(__name__)

N_START = 6  # uniform points of the first round: the paper's n_0
N_ROUND = 3  # points of every round after it: n_j
MAX_COEFFICIENTS = 3


def bayesian_round(
    study: Study, rounds: Sequence[Sequence[Candidate]], known: Sequence[Evaluation]
) -> list[Candidate]:
    """Propose the merges of the next round; none when all evaluations are used.

    A function of its arguments alone: the draws of round j are those of the seed and j.
    While failed measurements prevent a fit, all bins are equally likely.

    Raises:
        DesignError: fewer evaluations than reference points and first points.
    """
    start = _start(study)
    wanted = study.search.evaluations or len(start) + 2 * N_ROUND
    if not rounds:
        _refuse_too_few(wanted, len(start))
        return start
    count = min(N_ROUND, wanted - sum(map(len, rounds)))
    if count <= 0:
        return []
    rng = np.random.default_rng([study.search.seed, len(rounds)])
    X, errors = _errors(study, known)
    points = propose_points(X, errors, study.box, count, rng)
    return [("design", study.named(row)) for row in points]


def bayesian_problems(study: Study) -> list[Problem]:
    """List the problems of the settings of this strategy."""
    if len(study.bounds) <= MAX_COEFFICIENTS:
        return []
    text = (
        f"bayesian is for up to {MAX_COEFFICIENTS} coefficients, here are "
        f"{len(study.bounds)}; use map, or nested for many models"
    )
    return [Problem(("map", "search", "strategy"), text)]


def _start(study: Study) -> list[Candidate]:
    merges = {merge_key(c): c for c in study.fixed.values()}
    anchors = study.vectors(merges.values())
    # The paper's 6 may leave a quadratic in 3 coefficients under-determined where
    # anchors are few, or outside the box and not fitted; other surrogates bear that.
    plain = study.search.surrogate == "quadratic"
    terms = n_quadratic_terms(len(study.bounds)) if plain else 0
    count = len(anchors) + max(N_START, terms - int(study.contains(anchors).sum()))
    rng = np.random.default_rng([study.search.seed, 0])
    return study.candidates(make_design("uniform", count, study.box, anchors, rng))


def _refuse_too_few(wanted: int, start: int) -> None:
    if wanted < start:
        raise DesignError(
            f"bayesian starts with {start} merges, anchors included, but only {wanted} "
            f"evaluations were asked for; allow at least {start - wanted} more, better "
            f"{start - wanted + 2 * N_ROUND}, or use map"
        )


def _errors(study: Study, known: Sequence[Evaluation]) -> tuple[FloatArray, FloatArray]:
    """Return the measured merges (n, d) and the surrogates' squared errors (n,)."""
    merges = {e.key[0]: e.coefficients for e in known}
    X = study.vectors(merges.values())
    rows = {key: row for row, key in enumerate(merges)}
    columns = {task: column for column, task in enumerate(study.tasks)}
    measured = np.full((len(rows), len(columns)), math.nan)
    for e in known:
        measured[rows[e.key[0]], columns[e.task]] = e.value
    try:
        surrogates = fit_surrogates(study, known)
    except DesignError as error:
        LOG.info("the bins of this round are drawn alike: %s", error)
        return X, np.full(len(X), math.nan)
    predicted = np.column_stack([surrogates[task].predict(X) for task in columns])
    return X, squared_errors(measured, predicted)
