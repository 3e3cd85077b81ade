"""Estimates from parts of the documents: every sample enumerated, limits, growing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.foresight import Foresight
from mergekit_map.search.sampling import (
    PartValue,
    chances,
    drawn,
    estimate,
    grown,
    wanted_count,
)
from mergekit_map.tasks.standard_error import ratio_standard_error


def foresight(D: int, seed: int = 0, *, features: int = 0) -> Foresight:
    rng = np.random.default_rng(seed)
    return Foresight(
        rng.normal(size=D),
        rng.uniform(0.2, 2, size=D),
        0.5,
        features=rng.normal(size=(D, features)),
    )


@pytest.mark.parametrize("wrong_by", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("common", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("features", [0, 2])
def test_over_all_samples_the_mean_estimate_is_the_truth(
    wrong_by: float, common: float, features: int
) -> None:
    rng = np.random.default_rng(1)
    D = 8
    values, weights = rng.normal(size=D), rng.uniform(1, 5, size=D)
    foreseen = Foresight(
        values + wrong_by * rng.normal(size=D) ** 3,
        rng.uniform(0.01, 2, size=D),
        common,
        features=rng.normal(size=(D, features)),
    )
    pi = chances(3, weights, foreseen, uniform=0.1)

    expected = 0.0
    for sample in product([False, True], repeat=D):
        asked = np.array(sample)
        ids = np.flatnonzero(asked)
        found = estimate(ids, values[ids], pi, foreseen, weights)
        expected += float(np.prod(np.where(asked, pi, 1 - pi))) * found.value

    truth = weights @ values / weights.sum()
    assert expected == pytest.approx(truth, abs=1e-12 * (1 + wrong_by))


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("count", [8, 24, 60])
def test_a_standard_error_is_how_far_estimates_scatter(
    count: int, answers: bool
) -> None:
    rng = np.random.default_rng(2)
    D = 240
    weights = rng.uniform(1, 3, size=D)
    if answers:
        mean = rng.beta(0.5, 0.5, size=D).clip(1e-3, 1 - 1e-3)
        deviation = np.sqrt(mean * (1 - mean))
        values = (rng.uniform(size=D) < mean).astype(np.float64)
    else:
        mean, deviation = rng.normal(size=D), rng.uniform(0.1, 1, size=D)
        values = mean + 0.3 + deviation * rng.normal(size=D)
    foreseen = Foresight(mean, deviation, 0.3, answers=answers)
    pi = chances(count, weights, foreseen)
    truth = weights @ values / weights.sum()

    found = [
        _drawn_and_estimated(rng, values, pi, foreseen, weights) for _ in range(2000)
    ]

    off = np.array([one.value - truth for one in found])
    stderr = np.array([one.stderr for one in found])
    assert abs(off.mean()) < 4 * off.std() / np.sqrt(2000)
    assert 0.92 <= (abs(off) <= 1.96 * stderr).mean() <= 0.99
    assert np.sqrt((stderr**2).mean()) == pytest.approx(off.std(), rel=0.3)


def _drawn_and_estimated(
    rng: np.random.Generator,
    values: FloatArray,
    pi: FloatArray,
    foreseen: Foresight,
    weights: FloatArray,
) -> PartValue:
    ids = drawn(pi, rng.uniform(size=len(pi)))
    return estimate(ids, values[ids], pi, foreseen, weights)


def test_of_all_documents_the_value_is_exact_and_as_spread_as_a_ratio() -> None:
    rng = np.random.default_rng(3)
    values, weights = rng.normal(size=30), rng.uniform(1, 5, size=30)
    foreseen = foresight(30, features=2)

    found = estimate(np.arange(30), values, np.ones(30), foreseen, weights)

    assert found.value == pytest.approx(weights @ values / weights.sum(), abs=1e-12)
    assert found.stderr == 0
    spread = ratio_standard_error(list(weights * values), list(weights))
    assert found.spread == pytest.approx(spread)
    assert found.asked == 30


def test_the_spread_of_all_is_estimated_from_a_part() -> None:
    rng = np.random.default_rng(4)
    D = 300
    mean, weights = rng.normal(size=D), rng.uniform(1, 5, size=D)
    foreseen = Foresight(mean, np.full(D, 0.3), 0.1)
    values = mean + 0.3 * rng.normal(size=D)
    pi = chances(40, weights, foreseen)

    found = [
        _drawn_and_estimated(rng, values, pi, foreseen, weights).spread
        for _ in range(300)
    ]

    spread = ratio_standard_error(list(weights * values), list(weights))
    assert np.mean(found) == pytest.approx(spread, rel=0.02)


def test_with_nobody_asked_it_is_what_was_foreseen() -> None:
    foreseen, weights = foresight(20), np.ones(20)
    nobody = np.zeros(0, dtype=np.int_)

    found = estimate(nobody, np.zeros(0), np.full(20, 0.1), foreseen, weights)

    assert found.value == pytest.approx(foreseen.mean.mean())
    assert found.stderr > 0
    assert found.asked == 0


def test_one_document_asked_moves_all_by_the_error_they_may_share() -> None:
    """The shift of the one itself is learnt from nobody, and that of others from it."""
    foreseen = Foresight(np.zeros(4), np.ones(4), 1.0)

    found = estimate(
        np.array([2]), np.array([1.0]), np.full(4, 0.5), foreseen, np.ones(4)
    )

    assert found.value == pytest.approx((3 * 0.5 + 1 / 0.5) / 4)
    assert np.isfinite(found.stderr)


def test_of_an_exponential_errors_are_those_of_the_mean_times_its_slope() -> None:
    foreseen, weights = foresight(20), np.ones(20)
    ids, values, pi = np.arange(5), np.linspace(0, 1, 5), np.full(20, 0.25)

    plain = estimate(ids, values, pi, foreseen, weights)
    found = estimate(ids, values, pi, foreseen, weights, exponential=True)

    assert found.value == pytest.approx(np.exp(plain.value))
    assert found.stderr == pytest.approx(found.value * plain.stderr)
    assert found.spread == pytest.approx(found.value * plain.spread)


def test_documents_that_say_what_was_foreseen_leave_no_error() -> None:
    foreseen = Foresight(np.full(20, 3.0), np.zeros(20), 0.0)
    pi = chances(5, np.ones(20), foreseen)
    np.testing.assert_allclose(pi, 0.25)

    found = estimate(np.arange(5), np.full(5, 3.0), pi, foreseen, np.ones(20))

    assert found.value == pytest.approx(3.0, abs=1e-12)
    assert found.stderr < 1e-8
    assert wanted_count(foreseen, np.ones(20), 1e-3) < 1


def test_an_error_where_none_was_foreseen_is_not_hidden() -> None:
    foreseen = Foresight(np.full(40, 3.0), np.zeros(40), 0.0)
    values, pi = np.tile([1.0, 5.0], 20), np.full(40, 0.25)

    found = estimate(np.arange(10), values[:10], pi, foreseen, np.ones(40))

    # As a difference of ten from what was foreseen: 2 * sqrt(10 * 0.75) / 0.25 / 40.
    assert found.stderr == pytest.approx(0.55, rel=0.5)


@pytest.mark.parametrize("count", [0.01, 1, 10, 49])
@pytest.mark.parametrize("uniform", [0.1, 1.0])
def test_chances_add_up_to_the_count(count: float, uniform: float) -> None:
    pi = chances(count, np.arange(1.0, 51), foresight(50), uniform=uniform)

    assert pi.sum() == pytest.approx(count)
    assert pi.min() > 0
    assert pi.max() <= 1


def test_chances_go_with_weight_times_error_where_nothing_else_counts() -> None:
    foreseen, weights = foresight(50), np.arange(1.0, 51)

    pi = chances(2, weights, foreseen, uniform=1e-9)

    needed = weights * foreseen.deviation
    np.testing.assert_allclose(pi, 2 * needed / needed.sum(), rtol=1e-6)


def test_from_as_many_as_there_are_all_are_asked() -> None:
    assert chances(50, np.ones(50), foresight(50)).tolist() == [1.0] * 50
    assert chances(1e9, np.ones(50), foresight(50)).tolist() == [1.0] * 50


def test_growing_asks_the_same_again_and_some_more() -> None:
    u = np.random.default_rng(5).uniform(size=200)
    few, many = (chances(n, np.ones(200), foresight(200, n)) for n in (20, 60))
    whole = np.maximum(few, many)  # the chances there are, of which some are forgotten

    before = np.where(u < few, few, 0.0)
    more = grown(many, before)

    ids = drawn(more, u)
    np.testing.assert_array_equal(ids, drawn(whole, u))
    np.testing.assert_array_equal(more[ids], whole[ids])
    assert set(drawn(few, u)) < set(ids)


def test_documents_are_asked_as_often_as_their_chances_say() -> None:
    rng = np.random.default_rng(6)
    pi = chances(10, np.ones(30), foresight(30))

    often = np.mean(
        [np.isin(np.arange(30), drawn(pi, rng.uniform(size=30))) for _ in range(4000)],
        axis=0,
    )

    np.testing.assert_allclose(often, pi, atol=0.04)


def test_the_wanted_count_reaches_its_target() -> None:
    foreseen, weights = foresight(200), np.random.default_rng(7).uniform(1, 3, size=200)
    w = weights / weights.sum()

    count = wanted_count(foreseen, weights, 0.1)

    pi = chances(count, weights, foreseen)
    variance = (w**2 * (1 / pi - 1) * foreseen.deviation**2).sum()
    assert np.sqrt(variance) == pytest.approx(0.1, rel=1e-3)
    assert wanted_count(foreseen, weights, 0.0) == 200
    assert wanted_count(foreseen, weights, 1e9) < 1
