"""Refinement: measure where the predicted front is least certain, and fit again.

Beyond the paper. Stops when what was measured agrees with what was predicted there, or
when all evaluations are used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mergekit_map.results.log import Evaluation, merge_key
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.design import most_informative
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.study.fitting import fit_surrogates, predicted_front
from mergekit_map.study.study import Candidate, Study

# A prediction that misses by this many standard errors, or by this share of all that a
# task was seen to vary, is right; and so must this share of the predictions be.
_NOISE = 2.0
_SHARE = 0.01
_MOSTLY = 0.9


def refinement_round(
    study: Study,
    rounds: Sequence[Sequence[Candidate]],
    known: Sequence[Evaluation],
    left: int,
) -> list[Candidate]:
    """Propose points of the predicted front; none when it is trusted.

    A round has one merge per coefficient: as many as a plane through the front needs.

    Raises:
        DesignError: a surrogate cannot be fitted.
    """
    count = min(len(study.bounds), left)
    if count <= 0 or (len(rounds) > 1 and _agrees(study, rounds[-1], known)):
        return []
    X = study.vectors(c for planned in rounds for _, c in planned)
    front = predicted_front(study, fit_surrogates(study, known))
    fresh = front[[not (row == X).all(axis=1).any() for row in front]]
    count, slopes = min(count, len(fresh)), study.search.gradients
    chosen = most_informative(count, study.box, X, fresh, derivatives=slopes)
    return [("refinement", study.named(row)) for row in chosen]


def _agrees(
    study: Study, last: Sequence[Candidate], known: Sequence[Evaluation]
) -> bool:
    """Tell whether the last round came out as the fit without it predicts.

    The fit's own standard errors do not count: they say how wrong it may be, which is
    no reason to leave it so.
    """
    keys = {merge_key(c) for _, c in last}
    tested = [e for e in known if e.key[0] in keys and not e.failed]
    before = [e for e in known if e.key[0] not in keys]
    agree = []
    for task, surrogate in fit_surrogates(study, before).items():
        measured = [e for e in tested if e.task == task]
        predicted = surrogate.predict(study.vectors(e.coefficients for e in measured))
        miss = np.abs(np.array([e.value for e in measured]) - predicted)
        values = [e.value for e in before if e.task == task and not e.failed]
        noise = _NOISE * _noise(surrogate, measured)
        agree += (miss <= np.maximum(noise, _SHARE * np.ptp(values))).tolist()
    return bool(agree) and float(np.mean(agree)) >= _MOSTLY


def _noise(surrogate: Surrogate, measured: Sequence[Evaluation]) -> FloatArray:
    """Estimate by how much measurements of merges err against one another: (k,).

    Their standard errors are too large for that, as all are measured on the same items;
    the scatter around the fit is too large where its shape is wrong.
    """
    scatter = surrogate.quality.residual_stderr
    stderr = np.array([e.stderr or 0.0 for e in measured], dtype=np.float64)
    return np.fmin(stderr, scatter)
