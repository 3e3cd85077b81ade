"""What cannot be fitted, and why."""

import numpy as np
import pytest
from surrogate_data import BOUNDED, IDENTITY, unit

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.fit import fit_surrogate


@pytest.mark.parametrize("repeats", [1, 3])
def test_too_few_distinct_merges_are_refused(repeats: int) -> None:
    X = np.repeat(np.random.default_rng(0).uniform(size=(7, 3)), repeats, axis=0)

    with pytest.raises(DesignError, match=r"10 parameters, but only 7 .*at least 3"):
        fit_surrogate(X, X[:, 0], stderr=None, link=IDENTITY, bounds=unit(3))


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
