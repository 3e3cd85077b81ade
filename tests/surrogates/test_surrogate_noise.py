"""Standard errors of surrogates, and what those of the measurements weigh."""

import math

import numpy as np
import pytest
from surrogate_data import (
    BOUNDED,
    HALF,
    IDENTITY,
    LINKS,
    fit,
    noisy_data,
    noisy_fit,
    random_quadratic,
)

from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.quadratic import quadratic_features


@pytest.mark.parametrize("n", [6, 14])
@pytest.mark.parametrize("weighted", [False, True])
def test_standard_errors_are_those_of_least_squares_and_of_the_misfit(
    n: int, weighted: bool
) -> None:
    X, y = noisy_data(IDENTITY, n=n)
    noise = np.linspace(0.1, 0.5, n) if weighted else None
    weights = np.ones(n) if noise is None else 1 / (noise**2 + extra(noise, n))
    features = quadratic_features(X)
    inverse = np.linalg.inv(features.T * (weights / weights.mean()) @ features)
    leverage = ((features @ inverse) * features).sum(axis=1)

    fitted = fit(X, y, stderr=noise)

    # Every point is off by noise and misfit, and so is the fit; the truth by misfit.
    of_fit = fitted.stderr(X) ** 2 - fitted.misfit**2
    per_point = of_fit / leverage
    np.testing.assert_allclose(per_point, per_point[0], rtol=1e-6)
    assert per_point[0] > fitted.misfit**2
    assert weighted or fitted.misfit > 0


def extra(noise: np.ndarray, n: int) -> float:
    """Give the variance of the shape: unknown of six points, none of fourteen."""
    return float((noise**2).mean()) if n == 6 else 0.0


def test_what_the_residuals_say_is_that_of_ordinary_least_squares() -> None:
    X, y = noisy_data(IDENTITY)
    features = quadratic_features(X)
    terms = np.linalg.solve(features.T @ features, features.T @ y)
    variance = ((y - features @ terms) ** 2).sum() / (len(y) - 6)

    quality = noisy_fit(IDENTITY).quality

    assert quality.residual_stderr == pytest.approx(math.sqrt(variance))
    centred = quadratic_features(X - 0.5)
    assert quality.condition == pytest.approx(np.linalg.cond(centred))


@pytest.mark.parametrize("link", LINKS)
def test_behind_a_link_standard_errors_bend_with_it(link: Link) -> None:
    fitted = noisy_fit(link)
    Z = np.random.default_rng(0).uniform(size=(20, 2))
    features = quadratic_features(Z - 0.5)
    variance = ((features @ fitted.covariance) * features).sum(axis=1)
    deviation = np.sqrt(variance + fitted.misfit**2)
    s = fitted.quadratic.predict(Z)
    places, weights = np.polynomial.hermite_e.hermegauss(40)
    off = link.apply(s[:, None] + deviation[:, None] * places) - link.apply(s)[:, None]

    expected = np.sqrt((off**2) @ weights / weights.sum())

    np.testing.assert_allclose(fitted.stderr(Z), expected, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("link", [IDENTITY, BOUNDED, HALF])
@pytest.mark.parametrize(("n", "most"), [(12, 5.5), (60, 2.0)])
def test_standard_errors_hold_the_scatter_of_repeated_studies(
    link: Link, n: int, most: float
) -> None:
    # Of exact quadratics, which a few points do not show them to be.
    rng = np.random.default_rng(3)
    truth = random_quadratic(rng, 2)
    corners = [[0, 0], [0, 1], [1, 0], [1, 1], [0.5, 0.5], [0, 0.5]]
    X = np.vstack([corners, rng.uniform(size=(n - 6, 2))])
    Z = rng.uniform(size=(6, 2))
    noise = np.full(n, 0.004)
    exact = link.apply(truth.predict(X))

    fits = [fit(X, rng.normal(exact, noise), link, stderr=noise) for _ in range(50)]

    scatter = np.std([fit.predict(Z) for fit in fits], axis=0)
    claimed = np.sqrt(np.mean([fit.stderr(Z) ** 2 for fit in fits], axis=0))
    # The scatter of 50 studies is itself known to 10 %, three of which are allowed.
    assert (claimed > 0.7 * scatter).all()
    assert (claimed < most * scatter).all()


def test_a_standard_error_of_zero_does_not_dominate() -> None:
    X, y = noisy_data(BOUNDED, n=20)
    noise = np.full(20, 0.1)
    noise[0] = 0.0
    y[0] = 1.0  # all items right, far from what its neighbours say

    fitted = fit(X, y, BOUNDED, stderr=noise)

    equal = fit(X, y, BOUNDED)
    np.testing.assert_array_equal(fitted.predict(X), equal.predict(X))
    assert abs(fitted.predict(X[:1])[0] - 1.0) > 0.05


def test_noisy_points_count_less() -> None:
    X = np.repeat(np.linspace(0, 1, 5), 2)[:, None]
    y = np.tile([0.0, 1.0], 5)

    def level(noise: list[float]) -> float:
        fitted = fit(X, y, stderr=np.tile(noise, 5))
        return float(fitted.predict(np.array([[0.4]]))[0])

    assert level([1, 1]) == pytest.approx(0.5)
    # Weights 1 / 9 and 1 of the measured variances, which explain what is left.
    assert level([3, 1]) == pytest.approx(1 / (1 + 1 / 9))
    # No noise explains what is left: the shape is wrong, the same for all points.
    assert level([3e-200, 1e-200]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "noise", [None, np.zeros(14), np.full(14, np.nan), np.array([0, np.nan] * 7)]
)
def test_without_measured_noise_all_points_count_alike(
    noise: np.ndarray | None,
) -> None:
    X, y = noisy_data(IDENTITY)
    Z = np.random.default_rng(0).uniform(size=(5, 2))

    fitted = fit(X, y, stderr=noise)
    equal = fit(X, y, stderr=np.ones(14))

    np.testing.assert_allclose(fitted.predict(Z), equal.predict(Z), rtol=1e-12)


@pytest.mark.parametrize("kind", ["quadratic", "residual_gp"])
def test_a_fit_that_knows_of_the_choice_of_documents_is_nearer_the_truth(
    kind: str,
) -> None:
    Z = np.random.default_rng(9).uniform(size=(64, 2))
    errors: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = random_quadratic(rng, 2)
        X = rng.uniform(size=(24, 2))
        sampling = np.where(np.arange(24) < 12, 0.0, 1.0)
        y = truth.predict(X) + 0.01 * rng.normal(size=24)
        y += sampling * rng.normal(size=24)
        noise = np.full(24, 0.01)
        for knows, found in errors.items():
            known = {"stderr": noise, "sampling": sampling if knows else None}
            fitted = fit(X, y, IDENTITY, kind, **known)
            off = fitted.predict(Z) - truth.predict(Z)
            found.append(float(np.sqrt((off**2).mean())))

    assert np.median(errors[True]) < np.median(errors[False]) / 4
