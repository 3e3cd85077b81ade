"""The process against dense algebra, explicit refits and finite differences."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import Matern

from mergekit_map.surrogates.gaussian_process import (
    Covariance,
    GaussianProcess,
    Hyperparameters,
    Posterior,
    TrainingData,
    fit_gaussian_process,
    marginalize,
)
from mergekit_map.surrogates.quadratic import quadratic_features

SATURATION = 0.7
VECTOR = np.log([0.8, 1.7, 1.1, 0.9, 0.6, SATURATION, 0.5, 1.3])
THETA = Hyperparameters.from_vector(VECTOR)


def measured() -> tuple[TrainingData, np.ndarray]:
    rng = np.random.default_rng(0)
    U = rng.uniform(-0.5, 0.5, size=(9, 2))
    return TrainingData(U, np.linspace(0.01, 0.2, 9)), rng.normal(size=9)


def test_mean_deviation_and_probability_are_those_of_normal_distributions() -> None:
    data, z = measured()
    U = np.random.default_rng(1).uniform(-0.5, 0.7, size=(20, 2))
    # Constant, linear, then square, product, square.
    widths = np.array([10.0, *np.exp(VECTOR[[0, 0, 1, 2, 1]])])
    bumps = Matern(np.exp(VECTOR[6:]), nu=2.5)

    def effect(U: np.ndarray) -> np.ndarray:
        rest = np.exp(-SATURATION * (U + 0.5))
        return (1 - rest) / (1 - np.exp(-SATURATION)) - 0.5  # in the box, and above

    def covariance(V: np.ndarray, W: np.ndarray) -> np.ndarray:
        V, W = effect(V), effect(W)
        features, others = (quadratic_features(X) * widths for X in (V, W))
        return features @ others.T + np.exp(2 * VECTOR[4]) * bumps(V, W)

    noise = np.exp(2 * VECTOR[3]) * data.noise_variance
    K = covariance(data.U, data.U) + np.diag(noise)
    slopes = np.linalg.solve(K, covariance(data.U, U)).T
    variance = covariance(U, U) - slopes @ covariance(data.U, U)

    found = Posterior(data, z, THETA)

    mean, deviation = found.predict(U)
    np.testing.assert_allclose(mean, slopes @ z, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(deviation**2, variance.diagonal(), rtol=1e-6)
    likelihood = -found.negative_log_likelihood() - (len(z) / 2 * np.log(2 * np.pi))
    assert likelihood == pytest.approx(multivariate_normal(cov=K).logpdf(z), rel=1e-7)


def test_left_out_merges_are_those_of_explicit_refits() -> None:
    data, z = measured()
    mean, spread = Posterior(data, z, THETA).leave_one_out()

    for merge in range(9):
        kept = np.arange(9) != merge
        rest = TrainingData(data.U[kept], data.noise_variance[kept])
        one, deviation = Posterior(rest, z[kept], THETA).predict(data.U[[merge]])
        noise = np.exp(2 * VECTOR[3]) * data.noise_variance[merge]
        assert mean[merge] == pytest.approx(one[0], rel=1e-7)
        assert spread[merge] == pytest.approx(deviation[0] ** 2 + noise, rel=1e-7)


@pytest.mark.parametrize("rate", [2.0, 3.5])
def test_effects_that_saturate_are_predicted_as_such(rate: float) -> None:
    U = np.random.default_rng(0).uniform(-0.5, 0.5, size=(300, 2))
    z = np.exp(-rate * U) @ [1.0, 0.5]

    process = fit_gaussian_process(TrainingData(U[:14], np.full(14, 1e-4)), z[:14])

    np.testing.assert_allclose(process.mean(U), z, atol=1e-4 * z.std())


@pytest.mark.parametrize("saturation", [1e-4, 0.3, 4.0])
def test_the_covariance_has_the_gradient_of_differences(saturation: float) -> None:
    data, _ = measured()
    data = replace(data, sampling_variance=np.linspace(0.1, 0.5, 9))
    half = np.random.default_rng(2).normal(size=(9, 9))
    outer = half + half.T
    theta = replace(THETA, log_saturation=np.log(saturation))

    found = Covariance(data, theta).gradient(outer)

    for place, step in enumerate(1e-5 * np.eye(8)):
        near = [Hyperparameters.from_vector(theta.vector + s) for s in (step, -step)]
        ends = [Covariance(data, theta).matrix for theta in near]
        expected = (outer * (ends[0] - ends[1])).sum() / 2e-5
        assert found[place] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def fitted(seed: int = 0, n: int = 14) -> tuple[GaussianProcess, np.ndarray]:
    rng = np.random.default_rng(seed)
    U = rng.uniform(-0.5, 0.5, size=(n, 2))
    z = np.sin(5 * U[:, 0]) + U[:, 1] + rng.normal(scale=0.1, size=n)
    return fit_gaussian_process(TrainingData(U, np.full(n, 0.01)), z), z


def test_no_theta_near_the_most_probable_one_is_more_probable() -> None:
    process, z = fitted()
    seen = (z - z.mean()) / z.std()
    length = np.sqrt(2) / np.e  # of a diagonal
    belief = np.log([1.0, 2.0, 1.5, 0.5, 0.5, 0.01, length, length])
    vague = np.array([1.5, 1.5, 1.5, 1.0, 1.0, 2.0, 0.6, 0.6])

    def probability(vector: np.ndarray) -> float:
        covariance = Covariance(process.data, Hyperparameters.from_vector(vector))
        fit = multivariate_normal(cov=covariance.matrix).logpdf(seen)
        return float(fit - (((vector - belief) / vague) ** 2).sum() / 2)

    best = probability(process.mode.theta.vector)
    for step in 0.05 * np.vstack([np.eye(8), -np.eye(8)]):
        assert probability(process.mode.theta.vector + step) < best


def test_draws_are_probable_and_the_same_each_time() -> None:
    process, _ = fitted()

    first, again = (marginalize(process) for _ in range(2))

    assert first.draw_weights.sum() == pytest.approx(1)
    assert (first.draw_weights >= 0).all()
    assert 1 / (first.draw_weights**2).sum() > 5  # as many draws as count
    thetas, same = ([draw.theta.vector for draw in p.draws] for p in (first, again))
    np.testing.assert_array_equal(thetas, same)
    assert np.std(thetas, axis=0).min() > 0.01


def test_what_scatters_not_as_its_standard_errors_say_is_rough_itself() -> None:
    rng = np.random.default_rng(0)
    U = rng.uniform(-0.5, 0.5, size=(60, 2))
    z = U[:, 0] + rng.normal(scale=0.05, size=60)

    def deviation(noise: float, *, known: bool = True) -> float:
        data = TrainingData(U, np.full(60, noise**2), known_noise=known)
        found = marginalize(fit_gaussian_process(data, z))
        return float(np.sqrt(found.draw_weights @ found.predict(U)[1] ** 2).mean())

    # Of merges that share their questions, whose errors are mostly the same: the
    # scatter is the metric's. Else it is noise, which predictions have less of.
    assert 0.04 < deviation(0.2) < 0.07
    assert deviation(0.05) < 0.025
    # More scatter than noise, or none that is known of, is of the metric, too.
    assert 0.035 < deviation(0.02) < 0.065
    assert 0.04 < deviation(1.0, known=False) < 0.07


def test_the_effect_goes_straight_on_below_the_box() -> None:
    rng = np.random.default_rng(0)
    data = TrainingData(rng.uniform(-0.5, 0.5, size=(9, 1)), np.full(9, 0.01))
    found = Covariance(data, replace(THETA, log_length_scales=np.zeros(1)))

    # The second feature is the effect itself.
    low, lower, lowest = found.cross(np.array([[-0.5], [-0.6], [-0.8]]))[1][:, 1]

    assert low == -0.5
    slope = SATURATION / (1 - np.exp(-SATURATION))
    assert (lower - low, lowest - low) == pytest.approx((-0.1 * slope, -0.3 * slope))


def test_half_of_the_sampling_is_an_error_that_merges_have_in_common() -> None:
    data, _ = measured()
    sampling = np.linspace(0.1, 0.5, 9)
    sampled = replace(data, sampling_variance=sampling)

    more = Covariance(sampled, THETA).matrix - Covariance(data, THETA).matrix

    root = np.sqrt(sampling)
    expected = (np.diag(sampling) + np.outer(root, root)) / 2
    np.testing.assert_allclose(more, expected, atol=1e-12)
