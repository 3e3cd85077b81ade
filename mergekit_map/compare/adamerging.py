"""AdaMerging: coefficients that make the merge sure of itself (Yang et al., ICLR 2024).

One coefficient per model (the paper's task-wise variant), no labels: Adam goes down the
mean entropy of what the merge predicts. Every step is a line of the log, with its
derivatives, so that a descent which was stopped goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from mergekit_map.errors import EvaluationError
from mergekit_map.results.log import EvaluationLog, evaluation_key
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Study

START = 0.3  # of every coefficient, as in AdaMerging's own experiments
# AdaMerging takes some hundred steps of 1e-3 on batches; these are on the same text
# each time, and as few can cross the box.
_RATE = 0.03
_DECAYS = (0.9, 0.999)
_TINY = 1e-8


def minimise_entropy(
    study: Study,
    log: EvaluationLog,
    measure: Callable[[Mapping[str, float]], object],
    steps: int,
) -> dict[str, float]:
    """Go down the only task of ``study``; returns the coefficients after ``steps``.

    ``measure`` leaves a measurement with its gradient in the log, unless it is there.
    Coefficients stay in [0, 1], as in the authors' program.

    Raises:
        EvaluationError: a measurement failed or has no gradient.
    """
    (task,) = study.tasks
    c = np.full(len(study.bounds), START)
    mean, square = np.zeros_like(c), np.zeros_like(c)
    for step in range(1, steps + 1):
        named = study.named(c)
        measure(named)
        slope = study.vector(_gradient(study, log, task, named))
        mean = _DECAYS[0] * mean + (1 - _DECAYS[0]) * slope
        square = _DECAYS[1] * square + (1 - _DECAYS[1]) * slope**2
        unbiased = mean / (1 - _DECAYS[0] ** step)
        scale = np.sqrt(square / (1 - _DECAYS[1] ** step)) + _TINY
        c = np.clip(c - _RATE * unbiased / scale, 0.0, 1.0)
    return study.named(c)


def _gradient(
    study: Study, log: EvaluationLog, task: str, coefficients: Mapping[str, float]
) -> Mapping[str, float]:
    key = evaluation_key(coefficients, task)
    for e in reversed(matching(study, log)):
        slopes = e.gradient or {}
        if e.key == key and slopes and all(map(math.isfinite, slopes.values())):
            return slopes
    raise EvaluationError(
        f"the entropy at {dict(coefficients)} has no finite derivatives; see the last "
        f"lines of {log.path}"
    )
