"""The evaluation budget of an opponent, with the bounds and the handling of failures.

Notation: ``d`` coefficients, ``m`` tasks, ``U`` (k, d) points of the unit box, ``Y``
(k, m) their metrics, larger is better. Opponents search the unit box; only this module
knows the bounds of the coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.stats import qmc

from mergekit_map.surrogates.arrays import FloatArray, from_unit, ranges

Evaluate: TypeAlias = Callable[[FloatArray], FloatArray]  # (k, d) -> (k, m)

# A failed evaluation gets values below the worst seen, by this share of the range.
FAILURE_MARGIN = 0.1
# The value while all evaluations failed: no metric is this bad.
NOTHING_SEEN = -1e12


class Budget:
    """A number of evaluations in a box, spent in the order they are asked for.

    A failed evaluation (a row of metrics that are not all finite) counts. Its metrics
    are replaced by values worse than all measured so far, by a tenth of the range.
    """

    def __init__(
        self, evaluate: Evaluate, bounds: FloatArray, n_tasks: int, n_evaluations: int
    ) -> None:
        """Take bounds (d, 2)."""
        self.d, self.m = len(bounds), n_tasks
        self.left = n_evaluations
        self.bounds = bounds
        self._evaluate = evaluate
        self._U = np.empty((0, self.d))
        self.X = np.empty((0, self.d))  # what was evaluated, in the box, and
        self.Y = np.empty((0, self.m))  # what that gave

    def spend(self, U: FloatArray) -> FloatArray:
        """Evaluate the rows of U (k, d), or the first ``left``; returns metrics."""
        asked = np.clip(U[: self.left], 0.0, 1.0)
        if len(asked) == 0:
            return np.empty((0, self.m))
        X = from_unit(asked, self.bounds)
        Y = self._evaluate(X)
        self.left -= len(asked)
        self._U = np.vstack([self._U, asked])
        self.X, self.Y = np.vstack([self.X, X]), np.vstack([self.Y, Y])
        return self.history()[1][-len(asked) :]

    def history(self) -> tuple[FloatArray, FloatArray]:
        """Return all points (n, d) of the unit box so far and their metrics (n, m).

        Failures are filled by what is known now, so earlier ones may have become worse.
        """
        known = np.asarray(np.isfinite(self.Y).all(axis=1))
        if not known.any():
            return self._U, np.full_like(self.Y, NOTHING_SEEN)
        measured = self.Y[known]
        worst = measured.min(axis=0) - FAILURE_MARGIN * ranges(measured)
        return self._U, np.where(known[:, None], self.Y, worst)


def draw_seed(rng: np.random.Generator) -> int:
    """Draw the seed of a library that takes no generator, in [0, 2**31)."""
    return int(rng.integers(2**31))


def sobol_points(d: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw scrambled Sobol points of the unit box, (n, d)."""
    engine = qmc.Sobol(d, seed=rng)
    # A whole power of two keeps SciPy from warning.
    points = engine.random_base2((n - 1).bit_length())[:n]
    return np.asarray(points, dtype=np.float64)
