"""Quadratics by least squares behind links: weights of measurements, and shrinkage."""

import math

import numpy as np
import pytest
from scipy.stats import chi2, multivariate_normal
from surrogate_data import BOUNDED, IDENTITY, LINKS, random_quadratic, unit

from mergekit_map.surrogates.least_squares import fit_terms, shrink, weigh
from mergekit_map.surrogates.links import INVERT_MARGIN, Link
from mergekit_map.surrogates.observations import (
    Observations,
    known_errors,
    make_observations,
)
from mergekit_map.surrogates.quadratic import (
    Quadratic,
    quadratic_features,
    quadratic_from_terms,
)


def observed(X: np.ndarray, y: np.ndarray) -> Observations:
    return make_observations(X, y, unit(X.shape[1]))


def weights_of(
    X: np.ndarray, y: np.ndarray, noise: np.ndarray, link: Link = IDENTITY
) -> np.ndarray:
    return weigh(observed(X, y), link, noise).weights


def two_noises(n: int, ratio: float, rng: np.random.Generator) -> np.ndarray:
    return 0.005 * np.where(rng.random(n) < 0.5, ratio, 1.0)


@pytest.mark.parametrize("link", [IDENTITY, BOUNDED])
@pytest.mark.parametrize("ratio", [3.0, 10.0])
def test_exact_quadratics_are_found_as_well_as_the_noise_allows(
    link: Link, ratio: float
) -> None:
    ours, best, equal = 0.0, 0.0, 0.0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, truth = rng.uniform(size=(20, 2)), random_quadratic(rng, 2)
        noise = two_noises(20, ratio, rng)
        y = rng.normal(link.apply(truth.predict(X)), noise)
        Z = rng.uniform(size=(100, 2))

        def miss(weights: np.ndarray) -> float:
            data = observed(X, y)  # noqa: B023
            data.weights[:] = weights
            s = quadratic_features(Z - 0.5) @ fit_terms(data, link)  # noqa: B023
            off = link.apply(s) - link.apply(truth.predict(Z))  # noqa: B023
            return float((off**2).mean())

        ours += miss(weights_of(X, y, noise, link))
        best += miss(1 / noise**2)
        equal += miss(np.ones(20))

    assert ours < 1.1**2 * best
    assert equal > 1.2**2 * best


def test_what_is_left_decides_how_far_the_shape_is_off() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30, 2))
    noise = two_noises(30, 10.0, rng)
    y = rng.normal(0.3 * np.sin(9 * X[:, 0]), noise)

    weights = weights_of(X, y, noise)

    # Weights 1 / (noise^2 + tau^2), of mean 1, tell what tau^2 was taken.
    small, large = noise == noise.min(), noise == noise.max()
    ratio = weights[small][0] / weights[large][0]
    tau2 = (noise.max() ** 2 - ratio * noise.min() ** 2) / (ratio - 1)
    assert tau2 > 5 * noise.max() ** 2
    assert weights.mean() == pytest.approx(1)
    # Paule and Mandel: what is left, by these weights, is as large as noise may be.
    features, root = quadratic_features(X), 1 / np.sqrt(noise**2 + tau2)
    rows = root[:, None] * features
    fitted = rows @ np.linalg.lstsq(rows, root * y, rcond=None)[0]
    left = ((root * y - fitted) ** 2).sum()
    assert left == pytest.approx(chi2.ppf(0.95, 30 - 6), rel=1e-4)


def test_where_no_point_can_be_spared_the_mean_noise_is_added() -> None:
    rng = np.random.default_rng(0)
    X, y, noise = rng.uniform(size=(6, 2)), rng.normal(size=6), np.linspace(0.1, 0.6, 6)

    weights = weights_of(X, y, noise)

    expected = 1 / (noise**2 + (noise**2).mean())
    np.testing.assert_allclose(weights, expected / expected.mean())


def test_equal_noise_is_no_noise() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(12, 2)), rng.normal(size=12)

    np.testing.assert_array_equal(weights_of(X, y, np.full(12, 0.3)), np.ones(12))


def test_unknown_errors_are_the_median_and_none_is_zero() -> None:
    found = known_errors(np.array([0.3, np.nan, 0.0, 0.2, 0.5]))

    np.testing.assert_array_equal(found, [0.3, 0.25, 0.2, 0.2, 0.5])


def products() -> tuple[Observations, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(15, 3))
    y = X @ [1.0, -2.0, 0.5] + X[:, 0] * X[:, 1] + rng.normal(scale=0.2, size=15)
    return observed(X, y), y


def test_the_evidence_has_its_maximum_where_it_is_found() -> None:
    data, y = products()
    scale = y.std()

    shrunk, variance = shrink(data, Link(), 3)

    targets = (y - y.mean()) / scale
    noise = variance / scale**2
    widths = noise / shrunk.shrinkage[1:]  # of the prior, squared
    linear, square, product = 0, 3, 4  # one term of each kind
    found = np.log([widths[linear], widths[square], widths[product], noise]) / 2
    kinds = np.array([0, 0, 0, 1, 2, 2, 1, 2, 1])

    def log_posterior(logs: np.ndarray) -> float:
        prior = np.concatenate([[1e4], np.exp(2 * logs[kinds])])  # a free constant
        covariance = (data.features * prior) @ data.features.T
        covariance += np.exp(2 * logs[3]) * np.eye(len(y))
        belief = ((logs - np.log([1, 1, 1, 0.01])) / [4, 4, 4, 1.5]) ** 2
        return float(
            multivariate_normal(cov=covariance).logpdf(targets) - belief.sum() / 2
        )

    best = log_posterior(found)
    for step in 0.1 * np.vstack([np.eye(4), -np.eye(4)]):
        assert log_posterior(found + step) < best


def test_the_constant_is_never_shrunk() -> None:
    shrinkage = shrink(products()[0], Link(), 3)[0].shrinkage

    assert shrinkage[0] == 0
    assert (shrinkage[1:] > 0).all()


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


def test_the_three_cases_of_the_paper() -> None:
    s = np.array([-1.5, 0.0, 2.0])

    np.testing.assert_array_equal(Link().apply(s), s)
    np.testing.assert_allclose(Link(-1, 3).apply(s), 4 / (1 + np.exp(-s)) - 1)
    np.testing.assert_allclose(Link(lower=2).apply(s), np.log(1 + np.exp(s)) + 2)


def test_a_range_with_an_upper_end_only_mirrors_the_softplus() -> None:
    s = np.linspace(-4, 4, 9)

    mirrored = Link(upper=5.0).apply(s)

    np.testing.assert_allclose(5.0 - mirrored, Link(lower=0.0).apply(-s))


@pytest.mark.parametrize("link", [*LINKS, Link(-1.0, 3.0)])
def test_the_derivative_is_the_limit_of_differences(link: Link) -> None:
    s = np.linspace(-6, 6, 25)
    h = 1e-6

    differences = (link.apply(s + h) - link.apply(s - h)) / (2 * h)

    np.testing.assert_allclose(link.derivative(s), differences, rtol=1e-6, atol=1e-9)
    assert (link.derivative(s) > 0).all()


@pytest.mark.parametrize("link", [*LINKS, Link(-1.0, 3.0)])
def test_invert_undoes_apply(link: Link) -> None:
    s = np.linspace(-12, 12, 49).reshape(7, 7)

    np.testing.assert_allclose(link.invert(link.apply(s)), s, rtol=0, atol=1e-8)


@pytest.mark.parametrize("link", [*LINKS, Link(-1.0, 3.0)])
def test_the_far_ends_stay_in_range_without_a_warning(link: Link) -> None:
    y = link.apply(np.array([-1e300, -1e4, 1e4, 1e300]))

    assert np.isfinite(y).all()
    assert link.lower <= y.min() <= y.max() <= link.upper
    assert (np.diff(y) >= 0).all()
    assert np.isfinite(link.derivative(np.array([-1e300, 1e300]))).all()


def test_the_upper_bound_is_not_passed_by_rounding() -> None:
    lower, upper = -0.4, 0.8
    assert (upper - lower) + lower > upper  # what a naive formula returns

    assert Link(lower, upper).apply(np.array([1e3]))[0] == upper


@pytest.mark.parametrize(
    ("link", "values", "moved"),
    [
        (Link(0, 2), [-0.5, 0.0, 2.0, 2.5], [0, 0, 2, 2]),
        (Link(lower=1), [0.0, 1.0], [1, 1]),
        (Link(upper=1), [1.0, 2.0], [1, 1]),
    ],
)
def test_values_on_a_bound_are_moved_inside_by_the_margin(
    link: Link, values: list[float], moved: list[float]
) -> None:
    y = np.array(values)

    back = link.apply(link.invert(y))

    width = 2.0 if math.isfinite(link.lower + link.upper) else 1.0
    np.testing.assert_allclose(np.abs(back - moved), INVERT_MARGIN * width, rtol=1e-6)
    np.testing.assert_array_equal(y, values)


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0)])
def test_an_empty_range_is_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="range is empty"):
        Link(*ends)
