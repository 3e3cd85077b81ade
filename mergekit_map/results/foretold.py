"""What was predicted of merges before they were measured, held against what was."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mergekit_map.results.front import Front, Merge, Reading, Readings
from mergekit_map.search.arrays import FloatArray

NOMINAL, STDERRS = 0.95, 1.96  # such a share lies within so many standard errors
SAME_DIGITS = 1e-4  # relative difference that four digits do not show


@dataclass(frozen=True, eq=False)
class Foretelling:
    """A prediction that was made before the merge was measured."""

    merge: Merge
    task: str
    foretold: Reading
    measured: Reading
    errors: float | None  # standard errors apart; None where none is known

    @property
    def held(self) -> bool:
        """Whether it came true, as 95 % should."""
        value = self.measured.value or 0.0
        same = math.isclose(self.foretold.value or 0.0, value, rel_tol=SAME_DIGITS)
        return same or (self.errors is not None and self.errors <= STDERRS)


def foretold(merge: Merge) -> Readings:
    """Give what was predicted of a merge before it was measured, if that is known."""
    return merge.foretold or merge.readings("predicted")


def foretellings(front: Front) -> Iterator[Foretelling]:
    """List what was predicted before it was measured, merge by merge."""
    noise = {task: own_noise(front, task) for task in front.tasks}
    for place, merge in enumerate(front.known):
        for task, before in (merge.foretold or {}).items():
            after = merge.measured[task]
            if before.value is None or after.value is None:
                continue
            apart = abs(before.value - after.value)
            stderr = stderr_of_miss(before, after, float(noise[task][place]))
            yield Foretelling(
                merge, task, before, after, apart / stderr if stderr else None
            )


def stderr_of_miss(before: Reading, after: Reading, own: float) -> float:
    """Combine that of a prediction with what a measurement errs by itself.

    Without records per item (``own`` is NaN) that is at most what it errs in all.
    """
    alone = (after.stderr or 0.0) if math.isnan(own) else own
    return math.hypot(before.stderr or 0.0, alone)


def own_noise(front: Front, task: str) -> FloatArray:
    """Bound the noise that each merge (k,) does not share with the others.

    The semivariance at the shortest distance: between merges that err nearly alike, the
    shape of the metric has no part in their difference, or makes it larger (the limit
    is what geostatistics calls the nugget). NaN where nothing was compared by items.
    """
    found = np.full(len(front.known), np.nan)
    if (known := front.differences.get(task)) is None:
        return found
    apart = known.square
    # One without any difference is the same model under another name.
    least = np.where(apart > 0, apart, np.inf).min(axis=1) / math.sqrt(2)
    least[np.isinf(least)] = 0
    found[list(known.merges)] = least
    return found
