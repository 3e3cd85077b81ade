"""Surrogates: closed forms, explicit refits, simulation, and a faithful file."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy.optimize import least_squares

from mergekit_map.errors import DesignError
from mergekit_map.search.links import Link
from mergekit_map.search.quadratic import Quadratic, quadratic_features
from mergekit_map.search.surrogate import Surrogate, fit_surrogate

IDENTITY, BOUNDED, HALF = Link(), Link(0.0, 1.0), Link(lower=2.0)
LINKS = [IDENTITY, BOUNDED, HALF, Link(upper=5.0)]


def unit(d: int) -> np.ndarray:
    return np.tile([0.0, 1.0], (d, 1))


def random_quadratic(rng: np.random.Generator, d: int) -> Quadratic:
    A = rng.normal(size=(d, d)) / d
    return Quadratic(float(rng.normal()), rng.normal(size=d) / d, A + A.T)


def noisy_fit(link: Link, *, n: int = 14, d: int = 2, seed: int = 0) -> Surrogate:
    X, y = noisy_data(link, n=n, d=d, seed=seed)
    return fit_surrogate(X, y, stderr=None, link=link, bounds=unit(d))


def noisy_data(
    link: Link, *, n: int = 14, d: int = 2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    y = link.apply(random_quadratic(rng, d).predict(X))
    return X, y + rng.normal(scale=0.02, size=n)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_recovers_a_quadratic_from_a_just_identified_design(link: Link, d: int) -> None:
    rng = np.random.default_rng(d)
    truth = random_quadratic(rng, d)
    X = rng.uniform(size=((d + 1) * (d + 2) // 2, d))

    fitted = fit_surrogate(
        X, link.apply(truth.predict(X)), stderr=None, link=link, bounds=unit(d)
    )

    # Unseen points: agreement on X alone would also hold for a wrong interpolant.
    Z = rng.uniform(size=(50, d))
    expected = link.apply(truth.predict(Z))
    np.testing.assert_allclose(fitted.predict(Z), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(fitted.quadratic.hessian, truth.hessian, atol=1e-4)
    np.testing.assert_allclose(fitted.quadratic.linear, truth.linear, atol=1e-4)
    assert fitted.quadratic.intercept == pytest.approx(truth.intercept, abs=1e-4)
    assert fitted.quality.r2 == pytest.approx(1, abs=1e-9)
    assert math.isnan(fitted.quality.loo_r2)  # no point can be spared
    assert math.isnan(fitted.quality.residual_stderr)
    assert np.isnan(fitted.stderr(Z)).all()


@pytest.mark.parametrize("link", LINKS)
def test_the_fit_is_a_minimum_of_the_weighted_squares(link: Link) -> None:
    X, y = noisy_data(link)
    noise = np.linspace(0.01, 0.1, len(y))
    fitted = fit_surrogate(X, y, stderr=noise, link=link, bounds=unit(2))
    weights = 1 / (noise**2 + np.mean(noise**2))

    def cost(change: np.ndarray) -> float:
        s = fitted.quadratic.predict(X) + quadratic_features(X) @ change
        return float(weights @ (y - link.apply(s)) ** 2)

    best = cost(np.zeros(6))
    for step in np.vstack([np.eye(6), -np.eye(6)]) * 1e-4:
        assert cost(step) > best


@pytest.mark.parametrize("link", LINKS)
def test_the_order_of_coefficients_and_points_does_not_matter(link: Link) -> None:
    X, y = noisy_data(link, n=30, d=3)
    Z = np.random.default_rng(9).uniform(size=(20, 3))
    rows, columns = np.random.default_rng(1).permutation(30), [2, 0, 1]

    plain = fit_surrogate(X, y, stderr=None, link=link, bounds=unit(3))
    permuted = fit_surrogate(
        X[rows][:, columns], y[rows], stderr=None, link=link, bounds=unit(3)
    )

    same = {"rtol": 0, "atol": 1e-6}
    np.testing.assert_allclose(
        permuted.predict(Z[:, columns]), plain.predict(Z), **same
    )
    np.testing.assert_allclose(permuted.stderr(Z[:, columns]), plain.stderr(Z), **same)
    assert permuted.quality.loo_r2 == pytest.approx(plain.quality.loo_r2, abs=1e-6)


@pytest.mark.parametrize("link", LINKS)
def test_the_unit_of_a_coefficient_does_not_matter(link: Link) -> None:
    X, y = noisy_data(link)
    Z = np.random.default_rng(9).uniform(-0.5, 1.5, size=(20, 2))
    bounds = np.array([[-1.0, 4.0], [20.0, 20.5]])
    width = bounds[:, 1] - bounds[:, 0]

    plain = fit_surrogate(X, y, stderr=None, link=link, bounds=unit(2))
    moved = fit_surrogate(
        bounds[:, 0] + X * width, y, stderr=None, link=link, bounds=bounds
    )

    there = bounds[:, 0] + Z * width
    np.testing.assert_allclose(moved.predict(there), plain.predict(Z), atol=1e-6)
    np.testing.assert_allclose(moved.stderr(there), plain.stderr(Z), atol=1e-6)
    assert moved.quality.condition == pytest.approx(plain.quality.condition)


def test_bounds_are_only_a_unit_for_an_identity_fit() -> None:
    X, y = noisy_data(IDENTITY)
    Z = np.random.default_rng(9).uniform(size=(20, 2))

    unit_box = fit_surrogate(X, y, stderr=None, link=IDENTITY, bounds=unit(2))
    larger = fit_surrogate(X, y, stderr=None, link=IDENTITY, bounds=unit(2) * 3 - 1)

    np.testing.assert_allclose(larger.predict(Z), unit_box.predict(Z), atol=1e-10)
    np.testing.assert_allclose(larger.stderr(Z), unit_box.stderr(Z), atol=1e-10)


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
    noise = np.linspace(0.01, 0.1, len(y))
    root = np.sqrt(1 / (noise**2 + np.mean(noise**2)))
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


@pytest.mark.parametrize("link", [IDENTITY, BOUNDED, HALF])
@pytest.mark.parametrize("n", [6, 12])
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


@pytest.mark.parametrize(
    ("link", "value"), [(IDENTITY, 0.7), (IDENTITY, 0.0), (BOUNDED, 0.3), (HALF, 2.5)]
)
def test_a_constant_metric_is_fitted(link: Link, value: float) -> None:
    X = np.random.default_rng(0).uniform(size=(12, 2))

    fitted = fit_surrogate(
        X, np.full(12, value), stderr=None, link=link, bounds=unit(2)
    )

    np.testing.assert_allclose(fitted.predict(X), value, atol=1e-9)
    assert fitted.quality.r2 == fitted.quality.loo_r2 == 1.0


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_metric_stuck_on_its_bound_is_fitted(value: float) -> None:
    X = np.random.default_rng(0).uniform(size=(12, 2))

    fitted = fit_surrogate(
        X, np.full(12, value), stderr=None, link=BOUNDED, bounds=unit(2)
    )

    np.testing.assert_allclose(fitted.predict(X), value, atol=1e-5)
    assert fitted.quality.r2 == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_accuracies_of_exactly_zero_and_one_do_not_spoil_a_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(40, 2))
    truth = BOUNDED.apply(12 * X[:, 0] - 6 - 4 * X[:, 1] ** 2)
    y = rng.binomial(50, truth) / 50
    assert (y == 0).any()
    assert (y == 1).any()

    fitted = fit_surrogate(X, y, stderr=None, link=BOUNDED, bounds=unit(2))

    np.testing.assert_allclose(fitted.predict(X), truth, atol=0.1)
    assert np.isfinite(fitted.stderr(X)).all()
    assert fitted.quality.loo_r2 > 0.9


def test_values_outside_the_range_of_the_metric_are_used_as_they_are() -> None:
    X, y = noisy_data(BOUNDED)
    y[0] = 1.2

    fitted = fit_surrogate(X, y, stderr=None, link=BOUNDED, bounds=unit(2))

    clipped = fit_surrogate(
        X, np.minimum(y, 1.0), stderr=None, link=BOUNDED, bounds=unit(2)
    )
    assert fitted.predict(X)[0] > clipped.predict(X)[0] + 1e-3
    assert fitted.predict(X).max() <= 1


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("n", [6, 14])
def test_json_keeps_every_bit(link: Link, n: int) -> None:
    X, y = noisy_data(link, n=n)
    bounds = np.array([[-0.3, 1.7], [0.1, 0.7]])
    fitted = fit_surrogate(X, y, stderr=None, link=link, bounds=bounds)
    Z = np.random.default_rng(1).normal(size=(30, 2))

    text = json.dumps(fitted.to_dict(), allow_nan=False)
    loaded = Surrogate.from_dict(json.loads(text))

    assert loaded.predict(Z).tobytes() == fitted.predict(Z).tobytes()
    assert loaded.stderr(Z).tobytes() == fitted.stderr(Z).tobytes()
    assert loaded.link == fitted.link
    np.testing.assert_equal(asdict(loaded.quality), asdict(fitted.quality))
    assert json.dumps(loaded.to_dict()) == text


def test_a_file_speaks_the_users_units() -> None:
    X = np.random.default_rng(0).uniform(-1, 3, size=(10, 2))
    y = 1 + 2 * X[:, 0] - X[:, 1] + 3 * X[:, 0] * X[:, 1] + 0.5 * X[:, 1] ** 2

    data = fit_surrogate(
        X, y, stderr=None, link=IDENTITY, bounds=np.array([[-1.0, 3.0]] * 2)
    ).to_dict()

    assert data["intercept"] == pytest.approx(1)
    assert data["linear"] == pytest.approx([2, -1])
    np.testing.assert_allclose(data["hessian"], [[0, 3], [3, 1]], atol=1e-10)
    assert data["link"] == {"lower": None, "upper": None}


def test_a_damaged_file_names_what_is_missing() -> None:
    data = noisy_fit(IDENTITY).to_dict()
    del data["covariance"]

    with pytest.raises(KeyError, match="covariance"):
        Surrogate.from_dict(data)


def test_no_points_predict_nothing() -> None:
    fitted = noisy_fit(BOUNDED)

    assert fitted.predict(np.empty((0, 2))).shape == (0,)
    assert fitted.stderr(np.empty((0, 2))).shape == (0,)


def test_the_same_data_give_the_same_bytes_and_are_not_modified() -> None:
    X, y = noisy_data(BOUNDED)
    before = X.copy(), y.copy()

    first, again = (
        fit_surrogate(X, y, stderr=np.abs(y), link=BOUNDED, bounds=unit(2))
        for _ in range(2)
    )

    assert first.to_dict() == again.to_dict()
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize("repeats", [1, 3])
def test_too_few_distinct_merges_are_refused(repeats: int) -> None:
    X = np.repeat(np.random.default_rng(0).uniform(size=(7, 3)), repeats, axis=0)

    with pytest.raises(DesignError, match=r"10 parameters, but only 7 .*at least 3"):
        fit_surrogate(X, X[:, 0], stderr=None, link=IDENTITY, bounds=unit(3))


def test_no_merges_at_all_are_refused() -> None:
    with pytest.raises(DesignError, match=r"only 0 distinct .*at least 6 more"):
        fit_surrogate(
            np.empty((0, 2)), np.empty(0), stderr=None, link=IDENTITY, bounds=unit(2)
        )


def test_says_why_weights_that_sum_to_one_cannot_be_fitted() -> None:
    X = np.random.default_rng(0).dirichlet(np.ones(4), size=40)

    with pytest.raises(DesignError, match=r"10 of 15 parameters: .*sum to 1"):
        fit_surrogate(X, X[:, 0], stderr=None, link=BOUNDED, bounds=unit(4))


@pytest.mark.parametrize("levels", [1, 2])
def test_a_coefficient_with_too_few_levels_is_refused(levels: int) -> None:
    X = np.random.default_rng(0).uniform(size=(20, 2))
    X[:, 1] = np.arange(20) % levels

    with pytest.raises(DesignError, match=r"only [35] of 6 parameters: .*degenerate"):
        fit_surrogate(X, X[:, 0], stderr=None, link=IDENTITY, bounds=unit(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.full(14, np.nan)}, "must be finite: leave out"),
        ({"X": np.full((14, 2), np.inf)}, "must be finite: leave out"),
        ({"y": np.ones(13)}, "do not fit together"),
        ({"bounds": np.ones((3, 2))}, "do not fit together"),
        ({"bounds": np.ones((2, 2))}, "bounds must be finite and increasing"),
        ({"stderr": np.ones(3)}, r"stderr must be \(14,\)"),
        ({"stderr": np.full(14, -1.0)}, "finite and not negative"),
        ({"stderr": np.full(14, np.nan)}, "finite and not negative"),
    ],
)
def test_wrong_arrays_are_programming_mistakes(
    change: dict[str, np.ndarray], message: str
) -> None:
    X, y = noisy_data(IDENTITY)
    arrays = {"X": X, "y": y, "stderr": None, "bounds": unit(2), **change}

    with pytest.raises(ValueError, match=message):
        fit_surrogate(link=IDENTITY, **arrays)


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
        X,
        truth.predict(X),
        stderr=None,
        link=IDENTITY,
        bounds=unit(2),
        slopes=slopes,
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


@pytest.mark.parametrize("link", [IDENTITY, HALF])
def test_a_regularized_constant_is_constant(link: Link) -> None:
    X = np.random.default_rng(0).uniform(size=(8, 4))

    fitted = regularized(X, np.full(8, 3.0), link)

    np.testing.assert_allclose(fitted.predict(X + 0.1), 3.0, atol=1e-6)


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
    again = Surrogate.from_dict(json.loads(json.dumps(fitted.to_dict())))
    np.testing.assert_array_equal(again.predict(Z), fitted.predict(Z))
    np.testing.assert_array_equal(again.stderr(Z), fitted.stderr(Z))
