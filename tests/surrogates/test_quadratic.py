"""The quadratic and its features: two ways to the same number."""

import numpy as np
import pytest

from mergekit_map.surrogates.quadratic import (
    Quadratic,
    quadratic_features,
    quadratic_from_terms,
)


def test_predict_is_the_formula() -> None:
    A = np.array([[2.0, -1.0], [-1.0, 4.0]])
    b = np.array([0.5, 3.0])
    x = np.array([0.3, -2.0])

    value = Quadratic(1.5, b, A).predict(x[None])

    np.testing.assert_allclose(value, [1.5 + b @ x + x @ A @ x / 2])


@pytest.mark.parametrize("d", [1, 2, 5])
def test_terms_of_scaled_coordinates_read_back_in_the_users_units(d: int) -> None:
    rng = np.random.default_rng(d)
    bounds = np.sort(rng.normal(size=(d, 2)), axis=1) * 3
    terms = rng.normal(size=(d + 1) * (d + 2) // 2)
    X = rng.normal(size=(20, d))
    Z = (X - bounds[:, 0]) / (bounds[:, 1] - bounds[:, 0])

    fitted = quadratic_from_terms(terms, bounds)

    expected = quadratic_features(Z) @ terms
    np.testing.assert_allclose(fitted.predict(X), expected, rtol=1e-9, atol=1e-8)
    np.testing.assert_array_equal(fitted.hessian, fitted.hessian.T)
