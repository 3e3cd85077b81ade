"""How the hypervolume of a search grew."""

from __future__ import annotations

import itertools

import numpy as np

from mergekit_map.report.data import grown_volumes


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
