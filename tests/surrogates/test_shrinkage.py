"""Shrinkage: the evidence by a second implementation, and its limits."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mergekit_map.surrogates.least_squares import shrink
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.observations import make_observations

UNIT = np.tile([0.0, 1.0], (3, 1))


def observed(slopes: bool) -> tuple[object, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(15, 3))
    y = X @ [1.0, -2.0, 0.5] + X[:, 0] * X[:, 1] + rng.normal(scale=0.2, size=15)
    found = rng.normal(size=(15, 3)) if slopes else None
    return make_observations(X, y, UNIT, found), y


@pytest.mark.parametrize("slopes", [False, True])
def test_the_evidence_has_its_maximum_where_it_is_found(slopes: bool) -> None:
    data, y = observed(slopes)
    scale = y.std()

    shrunk, variance = shrink(data, Link(), 3)

    shrinkage, more = shrunk.shrinkage, shrunk.slope_weight**-0.5
    rows = np.vstack([data.features, data.slope_features])
    targets = np.concatenate([y - y.mean(), data.slopes]) / scale
    noise = variance / scale**2
    widths = noise / shrinkage[1:]  # of the prior, squared
    linear, square, product = 0, 3, 4  # one term of each kind
    found = (
        np.log([widths[linear], widths[square], widths[product], noise, more**2]) / 2
    )
    kinds = np.array([0, 0, 0, 1, 2, 2, 1, 2, 1])

    def log_posterior(logs: np.ndarray) -> float:
        prior = np.concatenate([[1e4], np.exp(2 * logs[kinds])])  # a free constant
        is_slope = np.arange(len(rows)) >= len(y)
        errors = np.exp(2 * (logs[3] + logs[4] * is_slope))
        covariance = (rows * prior) @ rows.T + np.diag(errors)
        belief = ((logs - np.log([1, 1, 1, 0.01, 1])) / [4, 4, 4, 1.5, 1]) ** 2
        return float(
            multivariate_normal(cov=covariance).logpdf(targets) - belief.sum() / 2
        )

    best = log_posterior(found)
    for step in 0.1 * np.vstack([np.eye(5), -np.eye(5)]):
        assert log_posterior(found + step) < best


def test_the_constant_is_never_shrunk() -> None:
    shrinkage = shrink(observed(slopes=False)[0], Link(), 3)[0].shrinkage

    assert shrinkage[0] == 0
    assert (shrinkage[1:] > 0).all()


def test_slopes_that_contradict_the_values_count_less() -> None:
    data, _ = observed(slopes=True)  # slopes drawn at random

    assert shrink(data, Link(), 3)[0].slope_weight < 0.8
