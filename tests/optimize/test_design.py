"""Designs: anchors first, nothing twice, inside the box, nested."""

from typing import Any

import numpy as np
import pytest
from surrogate_data import unit

from mergekit_map.optimize.design import make_design
from mergekit_map.surrogates.quadratic import n_quadratic_terms

KINDS = ["uniform", "sobol"]


def design_of(
    kind: str, n: int, d: int, anchors: Any = (), seed: int = 0
) -> np.ndarray:
    """Make a design of ``d`` coefficients between 0 and 1."""
    anchors = np.reshape(anchors, (-1, d))
    return make_design(kind, n, unit(d), anchors, np.random.default_rng(seed))


def soup_anchors(d: int) -> np.ndarray:
    return np.vstack([np.zeros((1, d)), np.eye(d), np.full((1, d), 1 / d)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 3])
def test_anchors_come_first_then_distinct_points_of_the_box(kind: str, d: int) -> None:
    bounds = np.tile([-0.5, 1.5], (d, 1))
    anchors = np.vstack([soup_anchors(d), np.full((1, d), 4.0)])  # one outside
    n = 3**d + len(anchors) + 2

    design = make_design(kind, n, bounds, anchors, np.random.default_rng(1))

    n_anchors = len(np.unique(anchors, axis=0))  # for d = 1 the soup is the model
    kept = anchors[np.sort(np.unique(anchors, axis=0, return_index=True)[1])]
    np.testing.assert_array_equal(design[:n_anchors], kept)
    assert len(np.unique(design, axis=0)) == len(design)
    assert (design[n_anchors:] >= -0.5).all()
    assert (design[n_anchors:] <= 1.5).all()
    assert len(design) == n


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 4])
def test_a_larger_design_starts_with_the_smaller_one(kind: str, d: int) -> None:
    anchors = soup_anchors(d)
    sizes = [n_quadratic_terms(d) + 1, n_quadratic_terms(d) + 2, 75, 130]

    small, next_one, middle, large = (design_of(kind, n, d, anchors, 5) for n in sizes)

    np.testing.assert_array_equal(next_one[: len(small)], small)
    np.testing.assert_array_equal(middle[: len(next_one)], next_one)
    np.testing.assert_array_equal(large[: len(middle)], middle)
    assert (design_of(kind, sizes[0], d, anchors, 6) != small).any()


def test_anchors_differing_by_rounding_or_the_sign_of_zero_are_one() -> None:
    anchors = np.array([[0.0, 0.3], [-0.0, 0.1 + 0.2], [0.0, 0.3]])

    design = design_of("sobol", 10, 2, anchors)

    assert (np.abs(design[1:] - design[0]).max(axis=1) > 1e-9).all()
    assert len(design) == 10
