"""Designs: anchors first, nothing twice, inside the box, nested where promised."""

from typing import Any

import numpy as np
import pytest
from surrogate_data import unit

from mergekit_map.errors import DesignError
from mergekit_map.optimize.design import DESIGNS, make_design
from mergekit_map.surrogates.quadratic import n_quadratic_terms, quadratic_features

NESTED = ["uniform", "sobol", "d_optimal"]


def design_of(
    kind: str, n: int, d: int, anchors: Any = (), seed: int = 0
) -> np.ndarray:
    """Make a design of ``d`` coefficients between 0 and 1."""
    anchors = np.reshape(anchors, (-1, d))
    return make_design(kind, n, unit(d), anchors, np.random.default_rng(seed))


def soup_anchors(d: int) -> np.ndarray:
    return np.vstack([np.zeros((1, d)), np.eye(d), np.full((1, d), 1 / d)])


def condition(X: np.ndarray) -> float:
    return float(np.linalg.cond(quadratic_features(X)))


@pytest.mark.parametrize("kind", sorted(DESIGNS))
@pytest.mark.parametrize("d", [1, 2, 3])
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
    assert len(design) == n or kind == "grid"


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("d", [1, 2, 4, 7])
def test_a_larger_design_starts_with_the_smaller_one(kind: str, d: int) -> None:
    anchors = soup_anchors(d)
    sizes = [n_quadratic_terms(d) + 1, n_quadratic_terms(d) + 2, 75, 130]

    small, next_one, middle, large = (design_of(kind, n, d, anchors, 5) for n in sizes)

    np.testing.assert_array_equal(next_one[: len(small)], small)
    np.testing.assert_array_equal(middle[: len(next_one)], next_one)
    np.testing.assert_array_equal(large[: len(middle)], middle)


@pytest.mark.parametrize("kind", sorted(DESIGNS))
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(kind: str) -> None:
    first, again, other = (
        design_of(kind, 16, 2, soup_anchors(2), seed) for seed in (3, 3, 4)
    )

    assert first.tobytes() == again.tobytes()
    assert (first.tobytes() != other.tobytes()) == (
        kind in {"uniform", "sobol", "latin_hypercube", "d_optimal"}
    )


def test_a_latin_hypercube_has_one_point_in_every_slice() -> None:
    design = design_of("latin_hypercube", 20, 3)

    for column in design.T:
        assert sorted(np.floor(column * 20)) == list(range(20))


def test_anchors_differing_by_rounding_or_the_sign_of_zero_are_one() -> None:
    anchors = np.array([[0.0, 0.3], [-0.0, 0.1 + 0.2], [0.0, 0.3]])

    design = design_of("grid", 10, 2, anchors)

    assert (design[1:] != design[0]).any(axis=1).all()
    assert len(design) == 10


@pytest.mark.parametrize(
    ("n", "levels"), [(9, 3), (15, 3), (16, 4), (24, 4), (25, 5), (26, 5)]
)
def test_the_grid_has_the_most_levels_that_fit(n: int, levels: int) -> None:
    anchors = np.array([[0.0, 0.0], [1.0, 1.0]])  # on every grid

    design = design_of("grid", n, 2, anchors)

    axis = np.linspace(0, 1, levels)
    expected = np.array([[a, b] for a in axis for b in axis])
    np.testing.assert_array_equal(design[np.lexsort(design.T[::-1])], expected)


def test_the_grid_counts_anchors_between_its_points() -> None:
    anchors = np.array([[0.5, 0.5], [0.1, 0.1]])  # on the 3-level grid; on none

    exact = design_of("grid", 10, 2, anchors)

    assert len(exact) == 10
    with pytest.raises(DesignError, match=r"needs 10 evaluations .*allow 1 more"):
        design_of("grid", 9, 2, anchors)


@pytest.mark.parametrize("d", [1, 2, 4, 7])
def test_just_identified_d_optimal_designs_beat_random_ones(d: int) -> None:
    n = n_quadratic_terms(d)

    ours = condition(design_of("d_optimal", n, d))

    assert ours < 1000
    assert ours < min(
        condition(design_of("uniform", n, d, seed=seed)) for seed in range(20)
    )


def test_d_optimal_in_one_coefficient_is_the_textbook_design() -> None:
    design = design_of("d_optimal", 3, 1)

    np.testing.assert_array_equal(np.sort(design[:, 0]), [0.0, 0.5, 1.0])


def test_too_few_evaluations_are_refused() -> None:
    anchors = np.random.default_rng(0).uniform(size=(11, 2))

    with pytest.raises(DesignError, match=r"11 reference .*only 8 .*at least 3 more"):
        design_of("sobol", 8, 2, anchors)
