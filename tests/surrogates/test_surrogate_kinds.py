"""Surrogates whose terms are shrunk, and what a residual process adds to them."""

import numpy as np
import pytest
from surrogate_data import BOUNDED, IDENTITY, LINKS, random_quadratic, unit

from mergekit_map.errors import DesignError
from mergekit_map.results.surrogate_file import SurrogateRecord
from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.quadratic import Quadratic
from mergekit_map.surrogates.surrogate import Surrogate


def regularized(X: np.ndarray, y: np.ndarray, link: Link = IDENTITY) -> Surrogate:
    return fit_surrogate(
        X, y, stderr=None, link=link, bounds=unit(X.shape[1]), kind="regularized"
    )


@pytest.mark.parametrize("link", LINKS)
def test_a_regularized_fit_of_plenty_of_exact_data_is_the_quadratic(link: Link) -> None:
    rng = np.random.default_rng(2)
    truth = random_quadratic(rng, 3)
    X, Z = rng.uniform(size=(40, 3)), rng.uniform(size=(30, 3))

    fitted = regularized(X, link.apply(truth.predict(X)), link)

    np.testing.assert_allclose(
        fitted.predict(Z), link.apply(truth.predict(Z)), atol=1e-4
    )


def test_a_regularized_fit_does_with_fewer_points_than_terms() -> None:
    rng = np.random.default_rng(0)
    d = 6  # 28 terms, of which few matter
    truth = Quadratic(0.0, rng.normal(size=d), np.diag(rng.normal(size=d)))
    X, Z = rng.uniform(size=(20, d)), rng.uniform(size=(200, d))

    fitted = regularized(X, truth.predict(X) + rng.normal(scale=0.01, size=20))

    y = truth.predict(Z)
    miss = y - fitted.predict(Z)
    assert (miss**2).mean() < 0.05 * y.var()
    # The standard errors tell how far off it is, though it fits every point closely.
    assert 0.3 < np.sqrt(((miss / fitted.stderr(Z)) ** 2).mean()) < 3


def test_noise_is_shrunk_away_where_least_squares_follows_it() -> None:
    rng = np.random.default_rng(1)
    X, Z = rng.uniform(size=(30, 5)), rng.uniform(size=(200, 5))
    y = X @ np.ones(5) + rng.normal(scale=0.3, size=30)

    shrunk = regularized(X, y)
    plain = fit_surrogate(X, y, stderr=None, link=IDENTITY, bounds=unit(5))

    def miss(fitted: Surrogate) -> float:
        return float(((fitted.predict(Z) - Z @ np.ones(5)) ** 2).mean())

    assert miss(shrunk) < miss(plain) / 3


def test_a_regularized_fit_of_two_merges_is_refused() -> None:
    with pytest.raises(DesignError, match="at least 3 distinct merges, but only 2"):
        regularized(np.eye(2), np.ones(2))


def wavy(X: np.ndarray) -> np.ndarray:
    value: np.ndarray = (
        0.5 + 0.3 * np.tanh(8 * (X[:, 0] - 0.5)) + 0.1 * np.sin(6 * X[:, 1])
    )
    return value


@pytest.mark.parametrize("link", [IDENTITY, BOUNDED])
def test_a_residual_process_takes_what_the_quadratic_leaves(link: Link) -> None:
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(size=(40, 2)), rng.uniform(size=(200, 2))
    plain = regularized(X, wavy(X), link)

    fitted = fit_surrogate(
        X, wavy(X), stderr=None, link=link, bounds=unit(2), kind="residual_gp"
    )

    def r2(surrogate: Surrogate) -> float:
        return float(1 - ((surrogate.predict(Z) - wavy(Z)) ** 2).mean() / wavy(Z).var())

    assert r2(plain) < 0.96
    assert r2(fitted) > 0.975
    assert fitted.quality.loo_r2 > plain.quality.loo_r2 + 0.03
    again = SurrogateRecord.of(fitted).value()
    np.testing.assert_array_equal(again.predict(Z), fitted.predict(Z))
    np.testing.assert_array_equal(again.stderr(Z), fitted.stderr(Z))
