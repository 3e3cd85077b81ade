"""Hypervolumes of several searches on one scale, with how well they are known.

A volume is a share of the box between the reference point and the ideal one, of what
all searches found together. Notation: ``k`` merges of a search, ``m`` tasks, ``n``
items of a task, ``b`` draws; values are larger where better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mergekit_map.results.won_items import Item, Items
from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.gain import volume

_BELOW_NADIR = -0.1  # where volumes start, between nadir (0) and ideal (1)
_DRAWS = 200


@dataclass(frozen=True, eq=False)
class Scale:
    """Where the worst and best values of a joint front lie, by task."""

    nadir: FloatArray  # (m,)
    width: FloatArray  # (m,)

    @classmethod
    def of(cls, fronts: Sequence[FloatArray]) -> Scale:
        """Take that of the merges that no other beats; (k, m) each."""
        Y = np.vstack(fronts)
        beaten = np.array([((row <= Y).all(1) & (row < Y).any(1)).any() for row in Y])
        kept = Y[~beaten]
        nadir, width = kept.min(axis=0), np.ptp(kept, axis=0)
        # A task that all the best agree on has no unit there.
        flat = width <= 0
        nadir = np.where(flat, Y.min(axis=0), nadir)
        width = np.where(flat, np.ptp(Y, axis=0), width)
        return cls(nadir, np.where(width > 0, width, 1.0))

    def volume(self, Y: FloatArray) -> float:
        """Give the hypervolume of a front (k, m), as a share of the box."""
        box: float = (1 - _BELOW_NADIR) ** Y.shape[1]
        return volume((Y - self.nadir) / self.width, _BELOW_NADIR) / box

    @property
    def reference(self) -> FloatArray:
        """Give the point at which volumes start, (m,)."""
        reference: FloatArray = self.nadir + _BELOW_NADIR * self.width
        return reference


@dataclass(frozen=True)
class Volume:
    """The hypervolume of a search."""

    value: float
    stderr: float | None
    ahead: float  # of the first search
    ahead_stderr: float | None  # draws are the same for all, so that it is paired


def volumes(
    scale: Scale, fronts: Sequence[FloatArray], drawn: Sequence[FloatArray] | None
) -> list[Volume]:
    """Compare fronts (k, m) by volume; draws of them (b, k, m) tell the errors."""
    values = [scale.volume(Y) for Y in fronts]
    if drawn is None:
        return [Volume(value, None, value - values[0], None) for value in values]
    known = np.array([[scale.volume(Y) for Y in draws] for draws in drawn])
    stderr, ahead = known.std(axis=1), (known - known[0]).std(axis=1)
    return [
        Volume(value, float(one), value - values[0], float(two))
        for value, one, two in zip(values, stderr, ahead, strict=True)
    ]


def draw_items(
    found: Sequence[Sequence[Items]], sign: float, rng: np.random.Generator
) -> list[FloatArray] | None:
    """Draw a task's values anew from its items, the same ones for all; (b, k) each.

    None where not all merges of all searches were measured on the same two items or
    more.
    """
    items = list(found[0][0].values)
    same = all(one.values.keys() == set(items) for search in found for one in search)
    if len(items) < 2 or not same:
        return None
    times: IntArray = rng.multinomial(len(items), [1 / len(items)] * len(items), _DRAWS)
    return [
        sign * np.column_stack([_means(one, items, times) for one in search])
        for search in found
    ]


def _means(one: Items, items: Sequence[Item], times: IntArray) -> FloatArray:
    weights = np.array([one.weights[item] for item in items])
    values = np.array([one.values[item] for item in items])
    mean: FloatArray = (times @ (weights * values)) / (times @ weights)
    return np.exp(mean) if one.exponential else mean


def draw_each(
    Y: FloatArray, stderr: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw values (k,) that err independently, as measured; (b, k)."""
    drawn: FloatArray = Y + np.nan_to_num(stderr) * rng.normal(size=(_DRAWS, len(Y)))
    return drawn


def draw_together(
    Y: FloatArray, stderr: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw values (k,) that all err alike, as one surrogate predicts them; (b, k)."""
    drawn: FloatArray = Y + np.nan_to_num(stderr) * rng.normal(size=(_DRAWS, 1))
    return drawn
