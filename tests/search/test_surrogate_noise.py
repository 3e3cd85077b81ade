"""Standard errors of surrogates, and what those of the measurements weigh."""

import math

import numpy as np
import pytest
from surrogate_data import (
    BOUNDED,
    HALF,
    IDENTITY,
    LINKS,
    noisy_data,
    noisy_fit,
    random_quadratic,
    unit,
)

from mergekit_map.search.fit import fit_surrogate
from mergekit_map.search.links import Link
from mergekit_map.search.quadratic import quadratic_features


def test_standard_errors_are_those_of_ordinary_least_squares() -> None:
    X, y = noisy_data(IDENTITY)
    features = quadratic_features(X)
    terms = np.linalg.solve(features.T @ features, features.T @ y)
    variance = ((y - features @ terms) ** 2).sum() / (len(y) - 6)
    expected = np.sqrt(
        variance * np.diag(features @ np.linalg.inv(features.T @ features) @ features.T)
    )

    fitted = noisy_fit(IDENTITY)

    np.testing.assert_allclose(fitted.stderr(X), expected, rtol=1e-7)
    assert fitted.quality.residual_stderr == pytest.approx(math.sqrt(variance))
    centred = quadratic_features(X - 0.5)
    assert fitted.quality.condition == pytest.approx(np.linalg.cond(centred))


def test_standard_errors_are_those_of_weighted_least_squares() -> None:
    X, y = noisy_data(IDENTITY)
    noise = np.linspace(0.01, 0.1, len(y))
    W = np.diag(1 / (noise**2 + np.mean(noise**2)))
    features = quadratic_features(X)
    inverse = np.linalg.inv(features.T @ W @ features)
    residuals = y - features @ inverse @ features.T @ W @ y
    variance = residuals @ W @ residuals / (len(y) - 6)
    expected = np.sqrt(variance * np.diag(features @ inverse @ features.T))

    fitted = fit_surrogate(X, y, stderr=noise, link=IDENTITY, bounds=unit(2))

    np.testing.assert_allclose(fitted.stderr(X), expected, rtol=1e-7)


@pytest.mark.parametrize("link", LINKS)
def test_a_fit_through_every_point_is_as_uncertain_as_they_are(link: Link) -> None:
    X, y = noisy_data(link, n=6)
    noise = np.linspace(0.01, 0.1, 6)

    fitted = fit_surrogate(X, y, stderr=noise, link=link, bounds=unit(2))

    np.testing.assert_allclose(fitted.stderr(X), noise, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("link", [IDENTITY, BOUNDED, HALF])
@pytest.mark.parametrize("n", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_standard_errors_match_the_scatter_of_repeated_studies(
    link: Link, n: int
) -> None:
    # n = 6 has no degrees of freedom: all it knows is the measured noise.
    rng = np.random.default_rng(3)
    truth = random_quadratic(rng, 2)
    X = np.vstack(
        [
            [[0, 0], [0, 1], [1, 0], [1, 1], [0.5, 0.5], [0, 0.5]],
            rng.uniform(size=(6, 2)),
        ]
    )[:n]
    Z = rng.uniform(size=(6, 2))
    noise = np.full(n, 0.004)
    exact = link.apply(truth.predict(X))

    fits = [
        fit_surrogate(
            X, rng.normal(exact, noise), stderr=noise, link=link, bounds=unit(2)
        )
        for _ in range(150)
    ]

    scatter = np.std([fit.predict(Z) for fit in fits], axis=0)
    claimed = np.sqrt(np.mean([fit.stderr(Z) ** 2 for fit in fits], axis=0))
    # The scatter of 150 studies is itself known to 6 %, four of which are allowed.
    np.testing.assert_allclose(claimed, scatter, rtol=0.24)


def test_a_standard_error_of_zero_does_not_dominate() -> None:
    X, y = noisy_data(BOUNDED, n=20)
    noise = np.full(20, 0.1)
    noise[0] = 0.0
    y[0] = 1.0  # all items right, far from what its neighbours say

    fitted = fit_surrogate(X, y, stderr=noise, link=BOUNDED, bounds=unit(2))

    # The weight of that point is 1 / 0.095 relative to 1 / 0.195: about twice.
    assert abs(fitted.predict(X[:1])[0] - 1.0) > 0.05


def test_noisy_points_count_less() -> None:
    X = np.repeat(np.linspace(0, 1, 5), 2)[:, None]
    y = np.tile([0.0, 1.0], 5)

    def level(noise: list[float]) -> float:
        fitted = fit_surrogate(
            X, y, stderr=np.tile(noise, 5), link=IDENTITY, bounds=unit(1)
        )
        return float(fitted.predict(np.array([[0.4]]))[0])

    assert level([1, 1]) == pytest.approx(0.5)
    # Weights 1 / (9 + 5) and 1 / (1 + 5) of the measured variances 9 and 1.
    assert level([3, 1]) == pytest.approx((1 / 6) / (1 / 6 + 1 / 14))
    assert level([3e-200, 1e-200]) == pytest.approx(level([3, 1]))


@pytest.mark.parametrize("noise", [None, np.zeros(14)])
def test_without_measured_noise_all_points_count_alike(
    noise: np.ndarray | None,
) -> None:
    X, y = noisy_data(IDENTITY)
    Z = np.random.default_rng(0).uniform(size=(5, 2))

    fitted = fit_surrogate(X, y, stderr=noise, link=IDENTITY, bounds=unit(2))
    equal = fit_surrogate(X, y, stderr=np.ones(14), link=IDENTITY, bounds=unit(2))

    np.testing.assert_allclose(fitted.predict(Z), equal.predict(Z), rtol=1e-12)
