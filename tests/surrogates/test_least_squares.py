"""Quadratics by least squares behind links, and weights of measurements."""

import math

import numpy as np
import pytest
from surrogate_data import LINKS

from mergekit_map.surrogates.fit import fill_in_stderr
from mergekit_map.surrogates.links import INVERT_MARGIN, Link


def test_unfill_in_stderr_are_the_median_and_none_is_zero() -> None:
    found = fill_in_stderr(np.array([0.3, np.nan, 0.0, 0.2, 0.5]))

    np.testing.assert_array_equal(found, [0.3, 0.25, 0.2, 0.2, 0.5])


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


@pytest.mark.parametrize("link", LINKS)
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


@pytest.mark.parametrize("ends", [(1.0, 1.0), (math.nan, 1.0)])
def test_an_empty_range_is_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="range is empty"):
        Link(*ends)
