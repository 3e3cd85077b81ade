"""``bounds: auto``: a box that grows where merges measured beyond it are better.

Not in the paper. Where points of the predicted front lie at an end of the box, the
strip beyond that end is looked at. If it would enlarge the hypervolume, with every
prediction one standard error worse than it is, inside the box and beyond it, then the
merge of the strip that stands out most is measured. The end moves if that merge is
better than all that is measured and predicted inside, and so it is, with the same
caution, for a fit that has it; else the end stays for good.

Notation: ``k`` merges, ``m`` tasks, ``d`` coefficients; larger is better.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.results.quality import Growth
from mergekit_map.search.arrays import FloatArray, ranges
from mergekit_map.search.sketch import sketch_front
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.study.border import hypervolume_gain
from mergekit_map.study.fitting import fit_surrogates, predict_utilities
from mergekit_map.study.study import Candidate, Study

_STEP = 0.2  # how far an end moves at a time
_LEAST, _MOST = -0.5, 2.0  # and in all
_NEAR = 1e-3  # what lies at an end, as a share of the box
_WORTH = 1e-3  # a smaller gain, as a share of the hypervolume, is not worth a merge
# Volumes reach below the worst values by so much of the ranges: ends of a front count.
_BELOW = 0.1


class End(NamedTuple):
    """One of the two ends of a coefficient."""

    name: str
    upper: bool


@dataclass(frozen=True, eq=False)
class Box:
    """How far a box has grown."""

    start: Study  # in the box that the search began with
    study: Study  # in the box that stands
    refused: Mapping[End, float] = field(default_factory=dict)  # what was tried in vain


@dataclass(frozen=True, eq=False)
class _Promise:
    """What surrogates say of the strip beyond an end."""

    gain: float  # share of the hypervolume
    merge: FloatArray  # (d,) where to measure


def trial_round(
    study: Study, surrogates: Mapping[str, Surrogate], closed: Container[End]
) -> list[Candidate]:
    """Propose the best merge beyond an end of the box; none where none is promised.

    Args:
        study: The study, in the box as it stands.
        surrogates: Fitted in that box.
        closed: Ends beyond which nothing is tried again.
    """
    ends = [end for end in _ends(study) if end not in closed]
    if not ends:
        return []
    front = sketch_front(lambda X: predict_utilities(study, surrogates, X), study.box)
    if np.isnan(_cautious(study, surrogates, front)).any():
        return []
    promises = [
        promise
        for end in ends
        if _touched(study, end, front)
        for promise in [_promise(study, end, surrogates, front)]
        if promise is not None
    ]
    best = max(promises, key=lambda promise: promise.gain, default=None)
    return [] if best is None else [("refinement", study.named(best.merge))]


def settled(
    box: Box, rounds: Sequence[Sequence[Candidate]], known: Sequence[Evaluation]
) -> Box:
    """Decide on the end beyond which the last round measured, if it did.

    A function of its arguments alone, so that a search that is run again grows alike.
    """
    if len(rounds) < 2:
        return box
    merge = rounds[-1][0][1]
    for end in _ends(box.study):
        lower, upper = box.study.bounds[end.name]
        if merge[end.name] > upper if end.upper else merge[end.name] < lower:
            if _confirmed(box.study, end, merge, known):
                return replace(box, study=_moved(box.study, end))
            return replace(box, refused={**box.refused, end: merge[end.name]})
    return box


def growth_of(box: Box) -> tuple[Growth, ...]:
    """List the ends that were moved, or beyond which a merge was measured in vain."""
    ends = (End(name, upper) for name in box.start.bounds for upper in (False, True))
    return tuple(
        Growth(
            coefficient=end.name,
            start=start,
            end=now,
            tried=box.refused.get(end),
        )
        for end in ends
        for start in [box.start.bounds[end.name][end.upper]]
        for now in [box.study.bounds[end.name][end.upper]]
        if now != start or end in box.refused
    )


def _ends(study: Study) -> Iterator[End]:
    """List the ends that may move."""
    for name, (lower, upper) in study.bounds.items():
        if study.search.bounds_of(name) == "auto":
            if lower > _LEAST:
                yield End(name, upper=False)
            if upper < _MOST:
                yield End(name, upper=True)


def _moved(study: Study, end: End) -> Study:
    lower, upper = study.bounds[end.name]
    if end.upper:
        upper = min(round(upper + _STEP, 6), _MOST)
    else:
        lower = max(round(lower - _STEP, 6), _LEAST)
    return replace(study, bounds={**study.bounds, end.name: (lower, upper)})


def _touched(study: Study, end: End, front: FloatArray) -> bool:
    axis, (lower, upper) = [*study.bounds].index(end.name), study.bounds[end.name]
    apart = np.abs(front[:, axis] - (upper if end.upper else lower))
    return bool((apart <= _NEAR * (upper - lower)).any())


def _promise(
    study: Study, end: End, surrogates: Mapping[str, Surrogate], front: FloatArray
) -> _Promise | None:
    """Look at the strip beyond an end, as from the front (k, d) inside the box.

    None where it promises nothing that is worth a merge.
    """
    axis, moved = [*study.bounds].index(end.name), _moved(study, end)
    near, far = (part.box[axis, int(end.upper)] for part in (study, moved))
    strip = study.box
    strip[axis] = sorted((near, far))
    points = sketch_front(lambda X: _cautious(study, surrogates, X), strip)
    points = points[np.abs(points[:, axis] - near) > _NEAR]
    # What the box has nearest to the strip, so that nothing is gained by its gaps.
    border = points.copy()
    border[:, axis] = near
    Y = _cautious(study, surrogates, np.vstack([front, border]))
    hoped = _cautious(study, surrogates, points)
    worst = _reference(study, surrogates, Y[: len(front)])
    ahead = np.where((hoped > worst).all(axis=1), _ahead(hoped, Y), 0.0)
    if not (ahead > 0).any():
        return None
    gain = hypervolume_gain(Y - worst, hoped - worst)
    return _Promise(gain, points[int(ahead.argmax())]) if gain >= _WORTH else None


def _cautious(
    study: Study, surrogates: Mapping[str, Surrogate], X: FloatArray
) -> FloatArray:
    """Predict all tasks one standard error worse, at the rows of X (k, d); (k, m).

    NaN where nobody knows how wrong predictions are.
    """
    errors = np.column_stack([s.stderr(X) for s in surrogates.values()])
    return predict_utilities(study, surrogates, X) - errors


def _reference(
    study: Study, surrogates: Mapping[str, Surrogate], front: FloatArray
) -> FloatArray:
    """Give a place a little worse than a front (k, m) and all anchors; (m,)."""
    X = study.vectors(study.anchors.values())
    there = _cautious(study, surrogates, X[study.contains(X)])
    known = np.vstack([front, there])
    return np.asarray(known.min(axis=0) - _BELOW * np.ptp(known, axis=0))


def _ahead(Y: FloatArray, others: FloatArray) -> FloatArray:
    """Tell by how much merges (k, m) beat each of the others (n, m) on some task; (k,).

    As shares of the tasks' ranges over the others; not positive for a merge that one of
    them equals or dominates.
    """
    apart = (Y[:, None] - others) / ranges(others)
    return np.asarray(apart.max(axis=2).min(axis=1))


def _confirmed(
    study: Study, end: End, merge: Mapping[str, float], known: Sequence[Evaluation]
) -> bool:
    """Tell whether a measured merge beyond an end is better, and beyond its noise."""
    tried = _measured(study, [e for e in known if e.key[0] == merge_key(merge)])
    if not len(tried):
        return False
    within = [e for e in known if study.contains(study.vectors([e.coefficients])).all()]
    surrogates = fit_surrogates(_moved(study, end), known)
    front = sketch_front(lambda X: predict_utilities(study, surrogates, X), study.box)
    inside = np.vstack(
        [predict_utilities(study, surrogates, front), _measured(study, within)]
    )
    as_measured = _ahead(tried, inside)
    fitted, best = (
        _cautious(study, surrogates, X) for X in (study.vectors([merge]), front)
    )
    return bool(as_measured[0] > 0 and _ahead(fitted, best)[0] > 0)


def _measured(study: Study, known: Sequence[Evaluation]) -> FloatArray:
    """Give the values of merges that were measured on every task; (k, m)."""
    rows = [
        study.utilities(found)
        for found in by_merge(e for e in known if not e.failed).values()
        if len(found) == len(study.tasks)
    ]
    return np.array(rows, np.float64).reshape(-1, len(study.tasks))
