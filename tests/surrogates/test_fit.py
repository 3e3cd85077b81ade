"""Surrogates behind links: what is recovered, what does not matter, what is refused."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import least_squares
from surrogate_data import (
    BOUNDED,
    IDENTITY,
    LINKS,
    fit,
    noisy_data,
    quadratic,
    random_quadratic,
)

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.fit import fill_in_stderr
from mergekit_map.surrogates.quadratic import INVERT_MARGIN, Link, quadratic_features
from mergekit_map.types import SurrogateKind as Kind


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_recovers_a_quadratic_from_a_just_identified_design(link: Link, d: int) -> None:
    rng = np.random.default_rng(d)
    truth = random_quadratic(rng, d)
    X = rng.uniform(size=((d + 1) * (d + 2) // 2, d))

    fitted = fit(X, link.apply(truth(X)), link)

    # Unseen points: agreement on X alone would also hold for a wrong interpolant.
    Z = rng.uniform(size=(50, d))
    expected = link.apply(truth(Z))
    np.testing.assert_allclose(fitted.predict(Z), expected, rtol=0, atol=1e-6)
    assert fitted.quality.r2 == pytest.approx(1, abs=1e-9)
    assert math.isnan(fitted.quality.loo_r2)  # no point can be spared
    # Whether the shape is that of a quadratic, no point is left to tell.
    assert (fitted.stderr(Z) > 0.001 * np.ptp(fitted.predict(X))).all()
    # Of plenty of exact data, so does a regularized fit.
    X = rng.uniform(size=(60, d))
    plenty = fit(X, link.apply(truth(X)), link, "regularized")
    np.testing.assert_allclose(plenty.predict(Z), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", ["quadratic", "regularized", "residual_gp"])
def test_the_order_of_coefficients_and_points_does_not_matter(
    link: Link, kind: Kind
) -> None:
    X, y = noisy_data(link, n=30, d=3)
    Z = np.random.default_rng(9).uniform(size=(20, 3))
    rows, columns = np.random.default_rng(1).permutation(30), [2, 0, 1]

    plain, shuffled = fit(X, y, link, kind), fit(X[rows], y[rows], link, kind)
    permuted = fit(X[rows][:, columns], y[rows], link, kind)

    same = {"rtol": 0, "atol": 1e-5}
    np.testing.assert_allclose(shuffled.predict(Z), plain.predict(Z), **same)
    np.testing.assert_allclose(shuffled.stderr(Z), plain.stderr(Z), **same)
    there = permuted.predict(Z[:, columns]), permuted.stderr(Z[:, columns])
    np.testing.assert_allclose(there[0], plain.predict(Z), **same)
    np.testing.assert_allclose(there[1], plain.stderr(Z), **same)
    assert permuted.quality.loo_r2 == pytest.approx(plain.quality.loo_r2, abs=1e-5)


@pytest.mark.parametrize("link", LINKS)
def test_the_unit_of_a_coefficient_does_not_matter(link: Link) -> None:
    X, y = noisy_data(link)
    Z = np.random.default_rng(9).uniform(-0.5, 1.5, size=(20, 2))
    bounds = np.array([[-1.0, 4.0], [20.0, 20.5]])
    width = bounds[:, 1] - bounds[:, 0]

    plain = fit(X, y, link)
    moved = fit(bounds[:, 0] + X * width, y, link, bounds=bounds)

    there = bounds[:, 0] + Z * width
    np.testing.assert_allclose(moved.predict(there), plain.predict(Z), atol=1e-6)
    np.testing.assert_allclose(moved.stderr(there), plain.stderr(Z), atol=1e-6)
    np.testing.assert_allclose(moved.terms, plain.terms, atol=1e-6)


def test_values_outside_the_range_of_the_metric_are_used_as_they_are() -> None:
    X, y = noisy_data(BOUNDED)
    y[0] = 1.2

    fitted = fit(X, y, BOUNDED)

    clipped = fit(X, np.minimum(y, 1.0), BOUNDED)
    assert fitted.predict(X)[0] > clipped.predict(X)[0] + 1e-3
    assert fitted.predict(X).max() <= 1


@pytest.mark.parametrize("link", [BOUNDED, Link(0.0)])
def test_a_task_that_no_merge_gets_right_is_predicted_as_exactly(link: Link) -> None:
    X = np.random.default_rng(0).uniform(size=(16, 2))
    assert fit(X, np.full(16, link.lower), link, "residual_gp").stderr(X).max() < 1e-6


def test_a_regularized_fit_does_with_fewer_points_than_terms() -> None:
    rng = np.random.default_rng(0)
    d = 6  # 28 terms, of which few matter
    truth = quadratic(0.0, rng.normal(size=d), np.diag(rng.normal(size=d)))
    X, Z = rng.uniform(size=(20, d)), rng.uniform(size=(200, d))

    fitted = fit(X, truth(X) + rng.normal(scale=0.01, size=20), kind="regularized")

    y = truth(Z)
    miss = y - fitted.predict(Z)
    assert (miss**2).mean() < 0.05 * y.var()
    # The standard errors tell how far off it is, though it fits every point closely.
    assert 0.3 < np.sqrt(((miss / fitted.stderr(Z)) ** 2).mean()) < 3


RNG = np.random.default_rng(0)
REPEATED = np.repeat(RNG.uniform(size=(7, 3)), 3, axis=0)  # distinct ones count
LEVELS = np.column_stack([RNG.uniform(size=20), np.arange(20) % 2])


@pytest.mark.parametrize(
    ("X", "kind", "message"),
    [
        (REPEATED, "quadratic", "10 parameters, but only 7 .*at least 3"),
        (RNG.dirichlet(np.ones(4), size=40), "quadratic", "10 of 15 .*: .*sum to 1"),
        (LEVELS, "quadratic", "only 5 of 6 parameters: .*degenerate"),
        (np.eye(2), "regularized", "at least 3 distinct merges, but only 2"),
    ],
)
def test_says_why_a_design_has_no_fit(X: np.ndarray, kind: Kind, message: str) -> None:
    for link in (IDENTITY, BOUNDED):
        with pytest.raises(DesignError, match=message):
            fit(X, X[:, 0], link, kind)


@pytest.mark.parametrize("link", LINKS)
def test_loo_r2_of_a_weighted_fit_keeps_the_weights(link: Link) -> None:
    X, y = noisy_data(link)
    noise = np.linspace(0.05, 0.5, len(y))
    root = 1 / np.sqrt(noise**2 + (noise**2).mean())
    features = quadratic_features(X)

    def left_out(i: int) -> float:
        def residuals(terms: np.ndarray) -> np.ndarray:
            return np.delete(root * (y - link.apply(features @ terms)), i)

        tight = dict.fromkeys(("xtol", "ftol", "gtol"), 1e-14)
        terms = least_squares(residuals, np.zeros(6), jac="3-point", **tight).x
        return float(link.apply(features[i : i + 1] @ terms)[0])

    fitted = fit(X, y, link, stderr=noise)

    squares = sum((y[i] - left_out(i)) ** 2 for i in range(len(y)))
    expected = 1 - squares / ((y - y.mean()) ** 2).sum()
    assert fitted.quality.loo_r2 == pytest.approx(expected, abs=1e-6)
    tiny = fit(X, y, link, stderr=1e-200 * noise)
    np.testing.assert_allclose(tiny.terms, fitted.terms)


@pytest.mark.parametrize("link", [IDENTITY, BOUNDED])
def test_loo_r2_is_unknown_if_a_point_cannot_be_spared(link: Link) -> None:
    # Only the last point shows the curvature of the second coefficient.
    X = np.column_stack([np.linspace(0, 1, 8), np.arange(8) % 2.0])
    X = np.vstack([X, [0.3, 0.5]])

    fitted = fit(X, 0.5 + X[:, 0] / 9 + np.arange(9) / 99, link)

    assert math.isnan(fitted.quality.loo_r2)
    assert np.isfinite(fitted.stderr(X)).all()


SCRIPT = """
import numpy, scipy.linalg
from threadpoolctl import threadpool_info
from mergekit_map.surrogates.fit import all_threads, one_thread

def count():
    return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}

with one_thread():
    fits = count()
    with all_threads():
        tasks = count()
print(fits, tasks, count())
"""


def test_fits_have_one_thread_and_tasks_among_them_those_of_before() -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    said = subprocess.check_output([sys.executable, "-c", SCRIPT], env=env, text=True)

    assert said.split() == ["{1}", "{2}", "{2}"]


def test_unknown_errors_are_the_median_and_none_is_zero() -> None:
    found = fill_in_stderr(np.array([0.3, np.nan, 0.0, 0.2, 0.5]))

    np.testing.assert_array_equal(found, [0.3, 0.25, 0.2, 0.2, 0.5])
    for unknown in (None, np.zeros(2), np.full(2, np.nan), np.array([0, np.nan])):
        assert fill_in_stderr(unknown) is None


def test_the_three_cases_of_the_paper_and_the_mirrored_one() -> None:
    s = np.array([-1.5, 0.0, 2.0])

    np.testing.assert_array_equal(Link().apply(s), s)
    np.testing.assert_allclose(Link(-1, 3).apply(s), 4 / (1 + np.exp(-s)) - 1)
    np.testing.assert_allclose(Link(lower=2).apply(s), np.log(1 + np.exp(s)) + 2)
    np.testing.assert_allclose(Link(upper=5).apply(s), 5 - np.log(1 + np.exp(-s)))


@pytest.mark.parametrize("link", LINKS)
def test_a_link_increases_by_its_derivative_and_is_inverted(link: Link) -> None:
    s, h = np.linspace(-6, 6, 25).reshape(5, 5), 1e-6

    slopes = (link.apply(s + h) - link.apply(s - h)) / (2 * h)

    np.testing.assert_allclose(link.derivative(s), slopes, rtol=1e-6, atol=1e-9)
    assert (link.derivative(s) > 0).all()
    np.testing.assert_allclose(link.invert(link.apply(s)), s, rtol=0, atol=1e-8)


# Of the last one, (upper - lower) + lower is above upper.
@pytest.mark.parametrize("link", [*LINKS, Link(-0.4, 0.8)])
def test_the_far_ends_stay_in_range_without_a_warning(link: Link) -> None:
    y = link.apply(np.array([-1e300, -1e4, 1e4, 1e300]))

    assert np.isfinite(y).all()
    assert link.lower <= y.min() <= y.max() <= link.upper
    assert (np.diff(y) >= 0).all()
    assert np.isfinite(link.derivative(np.array([-1e300, 1e300]))).all()


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
