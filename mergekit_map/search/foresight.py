"""What is foreseen of each document at a merge, from all merges before it.

Notation: ``D`` documents, ``d`` coefficients in the unit box. The numbers come from
``cokriging.py``. Of answers, it is their margins that are foreseen: how far the right
answer is ahead of the others is smooth in the coefficients where right and wrong are
not, and an answer is right as probably as its margin is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.cokriging import krige

_SUREST = 1e-3  # an answer is never right or wrong more surely than this


@dataclass(frozen=True, eq=False)
class Seen:
    """What some documents said at one merge."""

    place: FloatArray  # (d,) in the unit box
    ids: IntArray  # (n,) which of the D documents, without repetition
    values: FloatArray  # (n,) finite: losses, or 1 where right and 0 where wrong
    margins: FloatArray | None = None  # (n,) of answers: positive where right


@dataclass(frozen=True, eq=False)
class Foresight:
    """What is expected at a merge."""

    mean: FloatArray  # (D,)
    deviation: FloatArray  # (D,) standard deviations, without what all have in common
    common: float  # the standard deviation of the error that all have in common


def foresee(place: FloatArray, earlier: Sequence[Seen], size: int) -> Foresight:
    """Foresee the values of all documents at a merge.

    Margins are used if all merges have them. Documents never asked are foreseen as the
    mean of the others, and to be off as these are apart. With nothing known, all are
    foreseen alike: 0, off by 1.

    Args:
        place: (d,) of the merge, in the unit box.
        earlier: All merges that were measured, in any order; not this one.
        size: How many documents there are, D.
    """
    earlier = [seen for seen in earlier if len(seen.ids)]
    if not earlier:
        return Foresight(np.zeros(size), np.ones(size), 1.0)
    answers = all(bool(np.isin(seen.values, (0, 1)).all()) for seen in earlier)
    margins = all(seen.margins is not None for seen in earlier)
    Y = np.full((len(earlier), size), np.nan)
    for row, seen in zip(Y, earlier, strict=True):
        row[seen.ids] = seen.margins if margins else seen.values
    kriged = krige(place, np.array([seen.place for seen in earlier]), Y)
    mean, deviation = _complete(kriged.mean, kriged.deviation)
    if not answers:
        return Foresight(mean, deviation, kriged.level)
    if margins:
        right = ndtr(mean / np.maximum(np.hypot(deviation, kriged.level), 1e-300))
    else:
        right = mean
    return _of_answers(right, kriged.level if not margins else None)


def _complete(mean: FloatArray, deviation: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fill in documents never asked."""
    asked = np.isfinite(mean)
    apart = float(np.hypot(mean[asked].std(), np.sqrt((deviation[asked] ** 2).mean())))
    return (
        np.where(asked, mean, mean[asked].mean()),
        np.where(asked, deviation, apart),
    )


def _of_answers(right: FloatArray, common: float | None) -> Foresight:
    right = np.clip(right, _SUREST, 1 - _SUREST)
    deviation = np.sqrt(right * (1 - right))
    if common is None:
        common = float(deviation.mean()) / 2
    return Foresight(right, deviation, common)
