"""A finished search as it is read: its front, its measurements, and its surrogates.

Surrogates are a function of the measurements, and of a hundred merges a fit takes a
tenth of a second: no file holds them. The search fits them to its log, and whoever
reads the front fits them again.

Notation: ``d`` axes of the surrogates, which are the coefficients of the front or the
weights of the groups of nested MAP; ``n`` measurements, ``k`` merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mergekit_map.errors import DesignError
from mergekit_map.results.front import Front, Reading, Readings
from mergekit_map.results.log import (
    ASSESSING,
    Evaluation,
    by_merge,
    measured_of,
    read_log,
)
from mergekit_map.results.run_folder import Manifest, RunFolder, open_run
from mergekit_map.surrogates.arrays import FloatArray, inside, weight
from mergekit_map.surrogates.fit import Surrogate, Surrogates, fit_surrogate, one_thread
from mergekit_map.surrogates.quadratic import Link
from mergekit_map.types import Metric, SurrogateKind

# A fit takes half a minute; what a stranger wrote may have more.
MOST_MERGES, _MOST_TERMS = 1000, 1 << 27
# A merge whose weights are this near to those of a merge of groups is that merge.
_ROUNDING = 1e-9
_SAME_STDERRS = 0.01  # more than another processor rounds, less than any fit


@dataclass(frozen=True, eq=False)
class FinishedSearch:
    """The contents of the folder of a search with a front, read once."""

    folder: RunFolder
    manifest: Manifest
    front: Front
    surrogates: Surrogates  # by task; none where they cannot be fitted
    evaluations: tuple[Evaluation, ...]  # of the front's coefficients


def read_finished(run: Path) -> FinishedSearch:
    """Read the folder of a search that is finished, or has a partial front."""
    folder = open_run(run)
    front, manifest = folder.read_front(), folder.read_manifest()
    evaluations = read_evaluations(folder, front)
    surrogates = fit_again(front, evaluations)
    return FinishedSearch(folder, manifest, front, surrogates, evaluations)


def read_evaluations(run: RunFolder, front: Front) -> tuple[Evaluation, ...]:
    """List the measurements of merges with the coefficients of a front."""
    manifest, names = run.read_manifest(), front.coefficients
    log, definitions = read_log(run.log), manifest.definitions
    measured = measured_of(log, manifest.merge, definitions, names)
    return tuple(e for e in measured if e.task in front.tasks)


def fit_all(
    tasks: Mapping[str, Metric],
    bounds: FloatArray,
    kind: SurrogateKind,
    X: FloatArray,
    evaluations: Sequence[Evaluation],
) -> dict[str, Surrogate]:
    """Fit a surrogate per task to the n ``evaluations``, without failed ones.

    ``X`` (n, d) has their places on the axes, which have these ``bounds`` (d, 2); rows
    of NaN are not fitted. Raises DesignError if a task has too few measurements, or of
    merges too alike.
    """
    located = set(np.flatnonzero(np.isfinite(X).all(axis=1)).tolist())
    surrogates = {}
    for task, metric in tasks.items():
        rows = [i for i, e in enumerate(evaluations) if i in located and e.task == task]
        usable = [evaluations[i] for i in rows]
        sampling = np.array([e.sampling or 0.0 for e in usable])
        stderr = np.array([e.stderr for e in usable], np.float64)  # NaN if unknown
        if not usable:
            raise DesignError(
                f"task {task!r} has no measurement to fit a surrogate to; see the "
                "errors in evaluations.jsonl"
            )
        values, link = np.array([e.value for e in usable]), Link(*metric.bounds)
        clipped = np.abs(link.apply(link.invert(values)) - values).max()
        # A count at a bound says little, but a number without an error all it says.
        tolerance = 1e-3 if (stderr > 0).any() else 1e-7
        if 0 < tolerance * np.ptp(values) < clipped:
            link = Link()  # some are too near to a bound for it
        try:
            surrogates[task] = fit_surrogate(
                X[rows],
                values,
                stderr=np.sqrt(np.maximum(stderr**2 - sampling**2, 0.0)),
                link=link,
                bounds=bounds,
                kind=kind,
                sampling=None if all(e.whole for e in usable) else sampling,
            )
        except DesignError as error:
            raise DesignError(f"task {task!r}: {error}") from None
    return surrogates


def fit_again(front: Front, evaluations: Iterable[Evaluation]) -> dict[str, Surrogate]:
    """Fit the surrogates of a front to the measurements of its search.

    None where they cannot be fitted, or do not predict what the front says: another
    version, or other measurements, found it.
    """
    merges = by_merge(filter(is_fitted, evaluations))
    if len(merges) > MOST_MERGES or len(merges) * len(front.axes) ** 2 > _MOST_TERMS:
        return {}
    usable = [e for tasks in merges.values() for e in tasks.values()]
    X = locate_in(front, (e.coefficients for e in usable))
    bounds, metrics = front.axis_bounds, front.metrics
    with suppress(DesignError), one_thread():
        surrogates = fit_all(metrics, bounds, front.surrogate, X, usable)
        if _agree_with_front(front, surrogates):
            return surrogates
    return {}


def _agree_with_front(front: Front, surrogates: Surrogates) -> bool:
    X = locate_in(front, (point.coefficients for point in front.points))
    Y = [[one.value for one in row.values()] for row in predict(surrogates, X)]
    signs = [metric.sign for metric in front.metrics.values()]
    stored = front.utilities(front.points, "predicted")
    stderr = np.nan_to_num(front.stderrs(front.points, "predicted"))
    difference = np.abs(np.array(Y, np.float64) * signs - stored)
    same = difference <= _SAME_STDERRS * stderr + _ROUNDING * np.abs(stored)
    return bool(np.all(same | np.isnan(difference)))


def is_fitted(evaluation: Evaluation) -> bool:
    """Whether the search fits it."""
    return not is_assessed(evaluation) and not evaluation.failed


def is_assessed(e: Evaluation) -> bool:
    """Whether it only judges a search; version 0.1.0 did not fit its front.

    Other surrogates have foretold the front of an earlier search.
    """
    is_taken_front = e.role == "front" and e.taken is not None
    return e.role in ASSESSING and e.foretold is None and not is_taken_front


def merge_at(front: Front, place: FloatArray) -> dict[str, float]:
    """Return the coefficients of a place (d,) on the axes of the surrogates."""
    axes = {n: weight(x) for n, x in zip(front.axes, place, strict=True)}
    return flat(axes, front.groups) if front.groups else axes


def flat(
    axes: Mapping[str, float], groups: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Return the coefficients of a merge, from the weights of groups of models.

    Groups share no model, so that each coefficient is one product.
    """
    names = next(iter(groups.values()))
    return {n: sum(axes[label] * of[n] for label, of in groups.items()) for n in names}


def locate_in(front: Front, merges: Iterable[Mapping[str, float]]) -> FloatArray:
    """Return the places of merges on the axes of a front; (k, d), NaN if not fitted."""
    return locate(merges, front.coefficients, front.groups, front.axis_bounds)


def locate(
    merges: Iterable[Mapping[str, float]],
    names: Iterable[str],
    groups: Mapping[str, Mapping[str, float]],
    bounds: FloatArray,
) -> FloatArray:
    """Return the places of merges on the axes of the surrogates; (k, d).

    NaN for each merge outside the ``bounds`` (d, 2) that surrogates are fitted in.
    """
    names = list(names)
    X = np.array([[merge[name] for name in names] for merge in merges], np.float64)
    X = X.reshape(-1, len(names))
    if not groups:
        return np.where(inside(X, bounds)[:, None], X, np.nan)
    basis = np.array([[group[name] for name in names] for group in groups.values()])
    weights: FloatArray = np.clip(X @ np.linalg.pinv(basis), *bounds.T)
    on_plane = np.all(np.abs(weights @ basis - X) <= _ROUNDING, axis=1)
    return np.where(on_plane[:, None], weights, np.nan)


def predict(surrogates: Surrogates, X: FloatArray) -> list[Readings]:
    """Predict every task at located merges (k, d); unknown where a row is NaN.

    A quadratic is not extrapolated beyond the bounds.
    """
    located = np.all(np.isfinite(X), axis=1)[:, None]
    readings: list[dict[str, Reading]] = [{} for _ in X]
    for task, surrogate in surrogates.items():
        # A corner of the box in place of the others, whose predictions are dropped.
        rows = np.where(located, X, surrogate.bounds[:, 0])
        pairs = np.stack([surrogate.predict(rows), surrogate.stderr(rows)], axis=1)
        pairs = np.where(located, pairs, np.nan)
        for reading, pair in zip(readings, pairs.tolist(), strict=True):
            reading[task] = Reading.of(*pair)
    return [*readings]
