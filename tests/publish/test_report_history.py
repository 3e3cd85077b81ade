"""How the hypervolume of a search grew."""

from __future__ import annotations

import itertools

import numpy as np

from mergekit_map.publish.report_history import grown_volumes

NAN = float("nan")


def covered(Y: np.ndarray, corner: float) -> float:
    """Give the area that points cover, by inclusion and exclusion."""
    area = 0.0
    for size in range(1, len(Y) + 1):
        for some in itertools.combinations(Y, size):
            area += (-1) ** (size + 1) * np.prod(np.min(some, axis=0) - corner)
    return float(area)


def test_volumes_are_those_of_inclusion_and_exclusion() -> None:
    Y = np.random.default_rng(0).normal(size=(8, 2))
    scaled = (Y - Y.min(axis=0)) / np.ptp(Y, axis=0)

    expected = [covered(scaled[: n + 1], -0.1) for n in range(8)]

    np.testing.assert_allclose(
        grown_volumes(Y), np.array(expected) / expected[-1], rtol=1e-12
    )


def test_volumes_never_shrink_and_end_at_one() -> None:
    grown = grown_volumes(np.random.default_rng(1).normal(size=(30, 4)))

    assert (np.diff(grown) >= 0).all()
    assert grown[-1] == 1


def test_a_merge_that_lacks_a_task_adds_nothing() -> None:
    Y = np.array([[NAN, 1.0], [0.0, 1.0], [2.0, NAN], [1.0, 0.0]])

    grown = grown_volumes(Y)

    assert np.isnan(grown[0])
    np.testing.assert_array_equal(grown[1:3], grown[1])
    np.testing.assert_allclose(grown[[1, 3]], grown_volumes(Y[[1, 3]]))
    assert np.isnan(grown_volumes(Y[[0, 2]])).all()


def test_one_merge_or_equal_ones_are_all_there_is() -> None:
    np.testing.assert_array_equal(grown_volumes(np.ones((3, 2))), [1, 1, 1])
    assert grown_volumes(np.empty((0, 2))).shape == (0,)


def test_of_a_long_search_some_volumes_are_taken_and_the_last_is_whole() -> None:
    Y = np.random.default_rng(2).normal(size=(900, 3))

    grown = grown_volumes(Y)

    assert len(np.unique(grown)) <= 200
    assert (np.diff(grown) >= 0).all()
    assert grown[-1] == 1
