"""Estimates from parts of the documents: every sample enumerated, limits, growing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.foresight import Foresight
from mergekit_map.search.sampling import chances, estimate


def foresight(mean: FloatArray, deviation: FloatArray, common: float) -> Foresight:
    return Foresight(mean, deviation, common)


@pytest.mark.parametrize("wrong_by", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("common", [0.0, 0.5, 1e6])
def test_over_all_samples_the_mean_estimate_is_the_truth(
    wrong_by: float, common: float
) -> None:
    rng = np.random.default_rng(0)
    D = 8
    values, weights = rng.normal(size=D), rng.uniform(1, 5, size=D)
    mean = values + wrong_by * rng.normal(size=D) ** 3
    foreseen = foresight(mean, rng.uniform(0.01, 2, size=D), common)
    pi = chances(3, weights, foreseen, uniform=0.1)

    expected = 0.0
    for sample in product([False, True], repeat=D):
        asked = np.array(sample)
        ids = np.flatnonzero(asked)
        found = estimate(ids, values[ids], pi, foreseen, weights)
        expected += np.prod(np.where(asked, pi, 1 - pi)) * found.value

    truth = weights @ values / weights.sum()
    assert expected == pytest.approx(truth, abs=1e-12 * (1 + wrong_by))
