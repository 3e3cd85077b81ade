import math

import numpy as np
import pytest

from mergekit_map.tasks.base import ratio_standard_error


def test_equal_weights_give_the_standard_error_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(size=30)

    error = ratio_standard_error(list(3 * values), [3] * 30)

    assert error == pytest.approx(values.std(ddof=1) / math.sqrt(30))


def test_the_error_is_that_of_simulated_ratios() -> None:
    rng = np.random.default_rng(2)
    weights = rng.integers(50, 100, size=(2000, 40))
    totals = weights * 2 + rng.normal(size=weights.shape) * weights
    spread = (totals.sum(1) / weights.sum(1)).std()

    errors = [
        ratio_standard_error(list(t), list(w))
        for t, w in zip(totals, weights, strict=True)
    ]

    assert np.mean(np.array(errors, dtype=float)) == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("totals", [[], [1.0]])
def test_fewer_than_two_items_have_no_known_error(totals: list[float]) -> None:
    assert ratio_standard_error(totals, [1.0] * len(totals)) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_total_makes_the_error_nan(bad: float) -> None:
    error = ratio_standard_error([1.0, bad, 2.0], [1.0, 1.0, 1.0])

    assert error is not None
    assert math.isnan(error)
