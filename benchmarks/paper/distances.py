"""GD and IGD in the paper's units, and what a search's front is in them.

p = 2 as its appendix prints them, of raw metric values: the distances shrink with the
number of points, and losses and accuracies have units of their own.
"""

from __future__ import annotations

from typing import NamedTuple

from mergekit_map.compare.indicators import front_of, generational_distance
from mergekit_map.surrogates.arrays import FloatArray
from paper.searched import Searched
from paper.win_rates import known

# Of a predicted front: distances depend on how many there are.
POINTS = 25


class Distances(NamedTuple):
    """How far a front is from the truth, and the truth from it."""

    gd: float
    igd: float


def distances(front: FloatArray, truth: FloatArray) -> Distances:
    """Measure a front (n, m) against one that is taken for the truth (k, m)."""
    return Distances(
        generational_distance(front, truth), generational_distance(truth, front)
    )


def true_front(direct: Searched) -> FloatArray:
    """Give what nothing dominates of all that a direct search measured."""
    return front_of(direct.own)


def own_front(searched: Searched) -> FloatArray:
    """Give what nothing dominates of what a search itself measured."""
    return front_of(searched.own)


def predicted_front(searched: Searched) -> FloatArray:
    """Give points of a predicted front, as measured at no charge."""
    return known(searched.assessed(POINTS).measured)
