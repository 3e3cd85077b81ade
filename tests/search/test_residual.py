"""The residual process against explicit refits and its closed form."""

import numpy as np

from mergekit_map.results.surrogates import ResidualRecord
from mergekit_map.search.residual import Residual, fit_residual


def data(n: int = 25) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    U = rng.uniform(-0.5, 0.5, size=(n, 2))
    return U, 0.02 * np.sin(9 * U[:, 0]) + rng.normal(scale=0.002, size=n)


def test_left_out_points_are_those_of_explicit_refits() -> None:
    U, r = data()
    fitted = fit_residual(U, r)

    for i in (0, 7, 24):
        rest = np.arange(len(U)) != i
        refit = Residual(U[rest], r[rest], fitted.scale, fitted.theta)
        expected = refit.predict(U[i : i + 1])[0][0]
        np.testing.assert_allclose(fitted.left_out()[i], expected, rtol=1e-6)


def test_the_unit_of_the_metric_does_not_matter() -> None:
    U, r = data()

    small, large = fit_residual(U, r), fit_residual(U, 1000 * r)

    np.testing.assert_allclose(large.theta, small.theta, atol=1e-3)
    for one, other in zip(large.predict(U), small.predict(U), strict=True):
        np.testing.assert_allclose(one, 1000 * other, rtol=1e-3, atol=1e-4)


def test_noise_alone_is_not_followed() -> None:
    rng = np.random.default_rng(4)
    U = rng.uniform(-0.5, 0.5, size=(40, 2))

    mean, _ = fit_residual(U, rng.normal(size=40)).predict(U)

    assert mean.std() < 0.5


def test_nothing_left_predicts_nothing() -> None:
    U, r = data()

    mean, stderr = fit_residual(U, 0 * r).predict(U)

    np.testing.assert_allclose(mean, 0, atol=1e-12)
    assert np.isfinite(stderr).all()


def test_json_keeps_every_bit() -> None:
    U, r = data()
    fitted = fit_residual(U, r)

    again = ResidualRecord.model_validate_json(
        ResidualRecord.of(fitted).model_dump_json()
    ).value()

    for one, other in zip(again.predict(U), fitted.predict(U), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_standard_error_is_of_the_mean_without_the_noise() -> None:
    U, r = data()
    fitted = fit_residual(U, r)
    height, wave_length, noise = np.exp(fitted.theta)
    squares = ((U[:, None] - U) ** 2).sum(axis=2)
    covariance = height * np.exp(-squares / (2 * wave_length**2))
    known = np.linalg.solve(covariance + noise * np.eye(len(U)), covariance)
    variance = height - (covariance * known).sum(axis=0)

    _, stderr = fitted.predict(U)

    np.testing.assert_allclose(stderr**2, fitted.scale**2 * variance, atol=1e-10)
