"""The content of a report as plain data, which the script of the page reads.

Tasks, coefficients and estimates are lists in one order. An estimate is a value and its
standard error, null where it is unknown, and its number of documents where these are
not all. Numbers that choose are exact; the grids of the surrogates are rounded.

Sentences about the points are listed once, and each point names them by index. An
amount is a list of its value, its standard error and its verdict; larger is better.

The history has the merges in the order of their measurement.

Notation: ``n`` merges in the order in which they were measured, ``m`` tasks.
"""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from mergekit_map._version import __version__
from mergekit_map.config.schema import SelectSpec
from mergekit_map.optimize.pareto import volume
from mergekit_map.report.merges import ItemReader, MeasuredMerge, Surfaces
from mergekit_map.results.diagnostics import prior_predictions
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import KINDS, Front, Merge, Reading, Task
from mergekit_map.results.gain_sentences import confirmed_in_words, gains_in_words
from mergekit_map.results.gains import Gains, anchor_values, gains, rival_of
from mergekit_map.results.log import Role
from mergekit_map.results.narrative import (
    prior_predictions_in_words,
    verdicts_of_points,
)
from mergekit_map.results.search_plan import unfinished_in_words
from mergekit_map.surrogates.arrays import FloatArray, finite
from mergekit_map.types import NO_SINGLE_MODEL
from mergekit_map.utils.files import plain


def points_content(run: FinishedSearch) -> dict[str, object]:
    """Return the sentences and gains of the points, in their order."""
    front, rivals = run.front, rivals_of(run.front)
    sentences: dict[str, int] = {}
    found = [
        (chosen, gains(chosen))
        for chosen in (
            front.model_copy(update={"selected": index})
            for index in range(len(front.points))
        )
    ]
    said = [
        {
            "ahead": [_amounts(front, of, rival) for rival in rivals],
            "kept": [_short(of.kept[task]) for task in front.tasks],
            "gained": _places(sentences, gains_in_words(chosen, of)),
            "verdicts": _places(sentences, verdicts),
        }
        for (chosen, of), verdicts in zip(found, verdicts_of_points(front), strict=True)
    ]
    return {
        "rivals": [
            {"label": label, "of": [_place(front, label, task) for task in front.tasks]}
            for label in rivals
        ],
        "said": said,
        "sentences": list(sentences),
        "apart": _apart(front),
        "items": list(_items(run)),
    }


def rivals_of(front: Front) -> list[str]:
    """List the rivals of a point: base, soup and best parent, where there are some."""
    return [rival.label for rival in gains(front).rivals]


def _place(front: Front, label: str, task: str) -> int | None:
    """Return the index of a rival among the anchors; the best parent goes by task."""
    rival = rival_of(front, label, task)
    return None if rival is None else front.anchors.index(rival)


def _amounts(front: Front, of: Gains, label: str) -> list[object]:
    rival = of.rival(label)
    tasks = rival.tasks if rival is not None else {}
    return [
        None
        if (one := tasks.get(task)) is None
        else (_short(one.amount), _short(one.stderr), one.verdict)
        for task in front.tasks
    ]


def _places(sentences: dict[str, int], said: Sequence[str]) -> list[int]:
    return [sentences.setdefault(text, len(sentences)) for text in said]


def _apart(front: Front) -> list[dict[str, object] | None]:
    """Return the standard errors of differences between measured points, by task."""
    n = len(front.points)
    found: list[dict[str, object] | None] = []
    for task in front.tasks:
        known = front.differences.get(task)
        points = [] if known is None else [i for i in known.merges if i < n]
        if known is None or len(points) < 2:
            found.append(None)
            continue
        # Points are counted first, so that theirs is a triangle at the start.
        found.append({"points": points, "stderr": known.stderr[: len(points) - 1]})
    return found


def _items(run: FinishedSearch) -> Iterator[dict[str, object]]:
    """Yield the points with records, and their items won against each anchor."""
    front, read = run.front, ItemReader(run)
    for index, point in enumerate(front.points):
        if not any(reading.value is not None for reading in point.measured.values()):
            continue
        against = [
            [read.compare(point, anchor, task) for task in front.tasks]
            for anchor in front.anchors
        ]
        if any(found is not None for row in against for found in row):
            yield {"point": index, "against": against}


def _short(value: float | None) -> float | None:
    """Round, to more digits than the page shows."""
    return None if value is None else float(f"{value:.5g}")


# Volumes reach a little below the worst value of each task, so that ends count.
_BELOW_WORST = -0.1
_MOST_VOLUMES = 200  # of a long search: the volume of others is that of the one before
# What others measured, or what documents say that the search did not see.
_NOT_OF_IT: frozenset[Role] = frozenset({"opponent", "baseline", "holdout"})


def history_content(front: Front, merges: Sequence[MeasuredMerge]) -> dict[str, object]:
    """Return the indices of merges in the history, and the volume after each."""
    places = [
        index
        for index, merge in enumerate(merges)
        if None not in merge.coefficients and not set(merge.roles) <= _NOT_OF_IT
    ]
    own = [merges[index] for index in places]
    volumes = [
        None if math.isnan(share) else float(f"{share:.5g}")
        for share in grown_volumes(_utilities(front, own))
    ]
    return {"places": places, "volume": volumes}


def grown_volumes(Y: FloatArray) -> FloatArray:
    """Return the hypervolume after each merge, as a share of the last; (n,).

    Tasks are scaled so that the merges run from 0 to 1. A merge that lacks a task,
    where Y (n, m) is NaN, adds nothing. The volume is NaN before the first complete
    merge. A long search has volumes at some of its merges only, as a picture shows.
    """
    whole = np.asarray(np.isfinite(Y).all(axis=1))
    if not whole.any():
        return np.full(len(Y), np.nan)
    worst, best = Y[whole].min(axis=0), Y[whole].max(axis=0)
    scaled = (Y - worst) / np.where(best > worst, best - worst, 1.0)
    grown, last = np.full(len(Y), np.nan), 0.0
    front, due = np.empty((0, Y.shape[1])), False
    taken = {*np.linspace(0, len(Y) - 1, _MOST_VOLUMES).round().astype(int).tolist()}
    for row in range(len(Y)):
        if whole[row] and not (front >= scaled[row]).all(axis=1).any():
            beaten = (scaled[row] >= front).all(axis=1)
            front, due = np.vstack([front[~beaten], scaled[row]]), True
        if due and (row in taken or not last):
            last, due = volume(front, _BELOW_WORST), False
        if len(front):
            grown[row] = last
    return grown / last


def _utilities(front: Front, merges: Sequence[MeasuredMerge]) -> FloatArray:
    metrics = front.metrics.values()

    def read(reading: Reading, sign: float) -> float:
        return math.nan if reading.value is None else sign * reading.value

    rows = [
        [
            read(r, metric.sign)
            for r, metric in zip(merge.measured, metrics, strict=True)
        ]
        for merge in merges
    ]
    return np.array(rows, np.float64).reshape(len(rows), len(front.tasks))


def report_content(
    run: FinishedSearch, surfaces: Surfaces, merges: Sequence[MeasuredMerge]
) -> Mapping[str, object]:
    """Return the content of the page of a finished search.

    Raises:
        ArtifactError: a recipe is missing.
    """
    front = run.front
    # Of which there may be tens of thousands: plain as they are made.
    many = {
        "points": [
            {
                **_readings(front, point),
                "recipe": run.folder.read_recipe(index),
                "recommended": index in front.recommended,
            }
            for index, point in enumerate(front.points)
        ],
        "merges": [_merge(merge) for merge in merges],
    }
    content: dict[str, object] = {
        "name": _name(run.folder.named),
        "run": shlex.quote(str(run.folder.named)),
        "facts": _facts(run),
        "coefficients": [
            {"name": name, "bounds": bounds}
            for name, bounds in front.coefficients.items()
        ],
        "order": front.order,
        "tasks": [_task(name, about) for name, about in front.tasks.items()],
        "anchors": _anchors(front),
        "selected": front.selected,
        "reason": front.reason,
        "confirmed": [
            *unfinished_in_words(run.folder, front),
            *confirmed_in_words(front),
        ],
        "start": _start(front),
        **points_content(run),
        "tested": _tested(front),
        "surfaces": _surfaces(surfaces),
        "history": history_content(front, merges),
    }
    return {**plain(content), **many}


def _name(path: Path) -> str:
    """Return the user's name of a run, unless that is no name."""
    named = path.is_absolute() or path.name in {"", ".."}
    return path.resolve().name if named else str(path)


def _facts(run: FinishedSearch) -> dict[str, object]:
    manifest = run.manifest
    return {
        "method": manifest.identity.get("method"),
        "surrogate": run.front.surrogate,
        "seed": manifest.seed,
        "searched_with": {
            "mergekit-map": manifest.mergekit_map,
            **manifest.packages,
            "Python": manifest.python,
        },
        "page_by": {"mergekit-map": __version__, "Python": platform.python_version()},
    }


def _task(name: str, task: Task) -> dict[str, object]:
    return {
        "name": name,
        "higher": task.metric.higher_is_better,
        "unit": task.unit,
        "facts": ", ".join(task.facts),
        "range": task.range,
        "fit": task.fit.model_dump(),
    }


def _anchors(front: Front) -> list[dict[str, object]]:
    """Return the anchors, with the errors that margins count."""
    errors = anchor_values(front).errors
    return [
        {
            "label": anchor.label,
            "kind": anchor.label if anchor.label in NO_SINGLE_MODEL else "model",
            "errors": [
                [finite(end) for end in errors[anchor.label or ""].get(task, ())]
                for task in front.tasks
            ],
            **_readings(front, anchor),
        }
        for anchor in front.anchors
    ]


def _readings(front: Front, merge: Merge) -> dict[str, object]:
    return {
        "coefficients": [merge.coefficients.get(name) for name in front.coefficients],
        **{
            kind: _pairs(merge.readings(kind)[task] for task in front.tasks)
            for kind in KINDS
        },
    }


def _pairs(readings: Iterable[Reading]) -> list[list[float | None] | None]:
    """List values with their standard errors, and with documents where not on all."""
    return [
        None
        if r.value is None
        else [r.value, r.stderr, *([] if r.documents is None else [r.documents])]
        for r in readings
    ]


def _start(front: Front) -> dict[str, object] | None:
    """Return the preference and limits that chose the point; None for an index."""
    select = front.select
    if select.index is not None:
        return None
    prefer = (SelectSpec() if select.knee else select).preference(front.tasks)
    limits = select.require or {}
    return {
        "weights": [prefer.get(task, 0.0) for task in front.tasks],
        "limits": [str(limits.get(task, "")) for task in front.tasks],
        "not_worse_than": select.rivals,
        "margin": select.least if select.rivals else 0,
        "scalarization": select.scalarization,
    }


def _tested(front: Front) -> dict[str, object]:
    """Compare the predictions made before measuring with the measurements."""
    found, place = list(prior_predictions(front)), list(front.tasks)
    held = sum(test.within_95 for test in found)
    return {
        "words": prior_predictions_in_words(held, len(found)) if found else "",
        "rows": [
            {
                "merge": _called(front, test.merge),
                "task": place.index(test.task),
                "foretold": (test.foretold.value, test.foretold.stderr),
                "measured": (test.measured.value, test.measured.stderr),
                "errors": test.errors,
                "held": test.within_95,
            }
            for test in found
        ],
    }


def _called(front: Front, merge: Merge) -> str:
    """Name a merge by its number on the front, or by its weights."""
    for index, point in enumerate(front.points):
        if point is merge:
            return f"point {index}"
    return merge.label or merge.weights


def _surfaces(surfaces: Surfaces) -> dict[str, object]:
    return {
        "kind": surfaces.kind,
        "axes": surfaces.axes,
        "nodes": surfaces.nodes.tolist(),
        "points": surfaces.points.tolist(),
        "value": surfaces.value.tolist(),
        "stderr": surfaces.stderr.tolist(),
        "through": surfaces.through,
    }


def _merge(merge: MeasuredMerge) -> dict[str, object]:
    readings = {
        "measured": merge.measured,
        "predicted": merge.predicted,
        "foretold": merge.foretold,
    }
    content = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in vars(merge).items()
        if key not in readings
    }
    return content | {kind: _pairs(r) for kind, r in readings.items()}
