"""What is foreseen of each document at a merge, from all merges before it.

Notation: ``D`` documents, ``d`` coefficients in the unit box. The numbers come from
``cokriging.py``. Of answers, it is their margins that are foreseen: how far the right
answer is ahead of the others is smooth in the coefficients where right and wrong are
not, and an answer is right as probably as its margin is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtr

from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.cokriging import krige

_SUREST = 5e-4  # an answer is never right or wrong more surely than this
# The scale of Student's t, in foreseen deviations: 0.77 is right for merges anywhere,
# but searches go where merges are alike, and are surprised there more often (1.0).
_SCALE = 0.88
_FREEDOM = 5.0  # of the errors of margins: Student's t has their long tails


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
    answers: bool = False  # values are 0 or 1, and mean how probable 1 is
    # (D, q) what errors may go along with, of mean 0 and variance 1.
    features: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))


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
        features = _standardised(mean, mean - _before(Y, mean))
        return Foresight(mean, deviation, kriged.level, features=features)
    width = _SCALE * np.hypot(deviation, kriged.level)

    def right(level: float) -> FloatArray:
        if not margins:
            return np.clip(mean + level, _SUREST, 1 - _SUREST)
        far: FloatArray = (mean + level) / np.maximum(width, 1e-300)
        return np.asarray(np.clip(stdtr(_FREEDOM, far), _SUREST, 1 - _SUREST))

    common = float((right(kriged.level) - right(-kriged.level)).mean()) / 2
    share = right(0.0)
    return Foresight(share, np.sqrt(share * (1 - share)), common, answers=True)


def _complete(mean: FloatArray, deviation: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fill in documents never asked."""
    asked = np.isfinite(mean)
    apart = float(np.hypot(mean[asked].std(), np.sqrt((deviation[asked] ** 2).mean())))
    return (
        np.where(asked, mean, mean[asked].mean()),
        np.where(asked, deviation, apart),
    )


def _before(Y: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Average what documents said (M, D), NaN where they were not asked; (D,)."""
    asked = np.isfinite(Y)
    counts = asked.sum(axis=0)
    sums = np.where(asked, Y, 0.0).sum(axis=0)
    return np.where(counts, sums / np.maximum(counts, 1), otherwise)


def _standardised(*columns: FloatArray) -> FloatArray:
    """Give those columns (D,) that are not constant mean 0 and variance 1; (D, q)."""
    away = [column - column.mean() for column in columns]
    kept = [x / x.std() for x in away if x.std() > 1e-9 * np.abs(columns[0]).max()]
    return np.array(kept).T if kept else np.zeros((len(columns[0]), 0))
