"""The R2 of points left out, against explicit refits."""

import math

import numpy as np
import pytest
from scipy.optimize import least_squares
from surrogate_data import BOUNDED, IDENTITY, LINKS, noisy_data, unit

from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.quadratic import quadratic_features


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS)
def test_loo_r2_is_that_of_explicit_refits(link: Link) -> None:
    X, y = noisy_data(link)
    fitted = fit_surrogate(X, y, stderr=None, link=link, bounds=unit(2))

    left_out = np.array(
        [
            fit_surrogate(
                np.delete(X, i, axis=0),
                np.delete(y, i),
                stderr=None,
                link=link,
                bounds=unit(2),
            ).predict(X[i : i + 1])[0]
            for i in range(len(y))
        ]
    )

    expected = 1 - ((y - left_out) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert fitted.quality.loo_r2 == pytest.approx(expected, abs=1e-7)
    assert fitted.quality.loo_r2 < fitted.quality.r2 < 1


@pytest.mark.parametrize("link", LINKS)
def test_loo_r2_of_a_weighted_fit_keeps_the_weights(link: Link) -> None:
    X, y = noisy_data(link)
    noise = np.linspace(0.05, 0.5, len(y))  # more than explains what is left
    root = 1 / noise
    features = quadratic_features(X)

    def left_out(i: int) -> float:
        def residuals(terms: np.ndarray) -> np.ndarray:
            return np.delete(root * (y - link.apply(features @ terms)), i)

        tight = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
        terms = least_squares(residuals, np.zeros(6), jac="3-point", **tight).x
        return float(link.apply(features[i : i + 1] @ terms)[0])

    fitted = fit_surrogate(X, y, stderr=noise, link=link, bounds=unit(2))

    squares = sum((y[i] - left_out(i)) ** 2 for i in range(len(y)))
    expected = 1 - squares / ((y - y.mean()) ** 2).sum()
    assert fitted.quality.loo_r2 == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("link", [IDENTITY, BOUNDED])
def test_loo_r2_is_unknown_if_a_point_cannot_be_spared(link: Link) -> None:
    # Only the last point shows the curvature of the second coefficient.
    a = np.linspace(0, 1, 8)
    X = np.column_stack([a, np.arange(8) % 2.0])
    X = np.vstack([X, [0.3, 0.5]])

    fitted = fit_surrogate(
        X, 0.5 + X[:, 0] / 9 + np.arange(9) / 99, stderr=None, link=link, bounds=unit(2)
    )

    assert math.isnan(fitted.quality.loo_r2)
    assert np.isfinite(fitted.stderr(X)).all()
