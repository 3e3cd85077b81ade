"""Surrogates of values and slopes: with fewer points, and left out together."""

import numpy as np
import pytest
from surrogate_data import IDENTITY, LINKS, noisy_data, random_quadratic, unit

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.quadratic import Quadratic
from mergekit_map.surrogates.surrogate import Surrogate


def slopes_of(link: Link, truth: Quadratic, X: np.ndarray) -> np.ndarray:
    return link.derivative(truth.predict(X))[:, None] * (
        truth.linear + X @ truth.hessian
    )


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_values_and_slopes_recover_a_quadratic_from_d_plus_one_points(
    link: Link, d: int
) -> None:
    rng = np.random.default_rng(d)
    truth = random_quadratic(rng, d)
    bounds = np.column_stack([np.full(d, -1.0), np.linspace(1.0, 3.0, d)])
    X = rng.uniform(-1, 1, size=(d + 1, d))

    fitted = fit_surrogate(
        X,
        link.apply(truth.predict(X)),
        stderr=None,
        link=link,
        bounds=bounds,
        slopes=slopes_of(link, truth, X),
    )

    np.testing.assert_allclose(fitted.quadratic.hessian, truth.hessian, atol=1e-4)
    np.testing.assert_allclose(fitted.quadratic.linear, truth.linear, atol=1e-4)
    assert fitted.quadratic.intercept == pytest.approx(truth.intercept, abs=1e-4)


def test_slopes_may_be_known_at_some_points_only() -> None:
    rng = np.random.default_rng(3)
    truth = random_quadratic(rng, 2)
    X = rng.uniform(size=(5, 2))
    slopes = slopes_of(IDENTITY, truth, X)
    slopes[1:] = np.nan

    fitted = fit_surrogate(
        X, truth.predict(X), stderr=None, link=IDENTITY, bounds=unit(2), slopes=slopes
    )

    np.testing.assert_allclose(fitted.quadratic.hessian, truth.hessian, atol=1e-8)


def test_too_few_points_with_slopes_are_refused() -> None:
    truth = random_quadratic(np.random.default_rng(0), 3)
    X = np.random.default_rng(1).uniform(size=(3, 3))

    with pytest.raises(DesignError, match="3 distinct merges and 9 slopes identify"):
        fit_surrogate(
            X,
            truth.predict(X),
            stderr=None,
            link=IDENTITY,
            bounds=unit(3),
            slopes=slopes_of(IDENTITY, truth, X),
        )


@pytest.mark.parametrize("link", LINKS)
def test_loo_r2_leaves_a_point_out_with_its_slopes(link: Link) -> None:
    rng = np.random.default_rng(5)
    X, y = noisy_data(link, n=6, seed=5)
    truth = random_quadratic(np.random.default_rng(5), 2)
    slopes = slopes_of(link, truth, X) + rng.normal(scale=0.05, size=X.shape)

    def fit(rest: np.ndarray) -> Surrogate:
        return fit_surrogate(
            X[rest],
            y[rest],
            stderr=None,
            link=link,
            bounds=unit(2),
            slopes=slopes[rest],
        )

    left_out = [fit(np.arange(6) != i).predict(X[i : i + 1])[0] for i in range(6)]
    expected = 1 - ((y - left_out) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    quality = fit(np.arange(6) >= 0).quality
    assert quality.loo_r2 == pytest.approx(expected, abs=1e-6)
