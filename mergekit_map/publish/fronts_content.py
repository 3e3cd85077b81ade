"""What the page of several searches shows: their fronts, on the tasks they share.

Tasks are shared that have the same fingerprint in all searches, so that they measure
the same on the same documents. Nothing is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from mergekit_map.errors import ArtifactError
from mergekit_map.files import plain
from mergekit_map.measurement import NO_SINGLE_MODEL
from mergekit_map.publish.fronts_volume import (
    Scale,
    draw_each,
    draw_items,
    draw_together,
    volumes,
)
from mergekit_map.publish.measured_merges import MeasuredMerge, measured_merges
from mergekit_map.publish.public_items import ItemReader
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import Reading
from mergekit_map.results.log import Role
from mergekit_map.results.underway import unfinished_in_words
from mergekit_map.results.won_items import Items
from mergekit_map.search.arrays import FloatArray
from mergekit_map.version import __version__
from mergekit_map.words import listed

_NOT_OF_IT: frozenset[Role] = frozenset({"opponent", "baseline", "holdout"})
_SEED = 0  # of the draws behind the errors of volumes


def fronts_content(runs: Sequence[FinishedSearch]) -> Mapping[str, object]:
    """Gather what the page shows of finished searches, the first one first.

    Raises:
        ArtifactError: they share no task, or one measured no merge on all of them.
    """
    tasks = _shared_tasks(runs)
    found = [_measured(run, tasks) for run in runs]
    first, names = runs[0].front, _names(runs)
    content: dict[str, object] = {
        "name": " and ".join(names),
        "left_out": [*_unfinished(runs, names), *_left_out(runs, tasks, names)],
        "tasks": [
            {
                "name": name,
                "higher": first.tasks[name].metric.higher_is_better,
                "unit": first.tasks[name].unit,
            }
            for name in tasks
        ],
        "runs": [
            {
                "name": name,
                "method": str(run.manifest.identity.get("method")),
                "coefficients": list(run.front.coefficients),
                "selected": run.front.selected,
                "points": [
                    {
                        "coefficients": [
                            point.coefficients[n] for n in run.front.coefficients
                        ],
                        "predicted": _pairs(point.readings("predicted"), tasks),
                        "measured": _pairs(point.measured, tasks),
                    }
                    for point in run.front.points
                ],
                "merges": [_merge(run, merge, tasks) for merge in merges],
            }
            for name, run, merges in zip(names, runs, found, strict=True)
        ],
        **_volumes(runs, tasks, found),
        "page_by": {"mergekit-map": __version__},
    }
    exact: Mapping[str, object] = plain(content)
    return exact


def _shared_tasks(runs: Sequence[FinishedSearch]) -> list[str]:
    first = runs[0]
    tasks = [
        task
        for task in first.front.tasks
        if all(
            task in run.front.tasks
            and run.manifest.definitions[task] == first.manifest.definitions[task]
            for run in runs
        )
    ]
    if not tasks:
        folders = listed([str(run.folder.named) for run in runs])
        raise ArtifactError(
            f"{folders} share no task: fronts are compared on tasks of the same name "
            "that measure the same on the same documents; search one of them again "
            "with the tasks of the other"
        )
    return tasks


def _left_out(
    runs: Sequence[FinishedSearch], tasks: Sequence[str], names: Sequence[str]
) -> list[str]:
    """Say which tasks are not compared, and why."""
    every = dict.fromkeys(itertools.chain(*(run.front.tasks for run in runs)))
    said = []
    for task in [task for task in every if task not in tasks]:
        having = [
            n for n, run in zip(names, runs, strict=True) if task in run.front.tasks
        ]
        where = f"only {listed(having)} measured it"
        if len(having) == len(runs):
            where = "it measures something else in each, or on other documents"
        said.append(f"{task} is not compared: {where}.")
    return said


def _unfinished(runs: Sequence[FinishedSearch], names: Sequence[str]) -> list[str]:
    """Say which searches are not finished, and how they go on."""
    return [
        f"{name} is not finished: {words}"
        for name, run in zip(names, runs, strict=True)
        for words in unfinished_in_words(run.folder, run.front)
    ]


def _names(runs: Sequence[FinishedSearch]) -> list[str]:
    """Call searches by their folders, with as much of the path as tells them apart."""
    parts = [run.folder.named.resolve().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, start=1)]


def _measured(run: FinishedSearch, tasks: Iterable[str]) -> list[MeasuredMerge]:
    """List the merges that a search measured on all documents of the tasks."""
    places = [list(run.front.tasks).index(task) for task in tasks]
    found = [
        merge
        for merge in measured_merges(run)
        if all(merge.measured[place].value is not None for place in places)
        and not set(merge.roles) <= _NOT_OF_IT
    ]
    if not found:
        raise ArtifactError(
            f"{run.folder.named} has no merge that was measured on {listed(tasks)}; "
            "continue its search"
        )
    return found


def _merge(
    run: FinishedSearch, merge: MeasuredMerge, tasks: Iterable[str]
) -> dict[str, object]:
    label = merge.label
    kind = label if label in NO_SINGLE_MODEL else "model"
    readings = dict(zip(run.front.tasks, merge.measured, strict=True))
    return {
        "label": label,
        "kind": None if label is None else kind,
        "point": merge.point,
        "coefficients": merge.coefficients,
        "measured": _pairs(readings, tasks),
    }


def _pairs(
    readings: Mapping[str, Reading], tasks: Iterable[str]
) -> list[tuple[float, float | None] | None]:
    found = [readings[task] for task in tasks]
    return [None if r.value is None else (r.value, r.stderr) for r in found]


def _volumes(
    runs: Sequence[FinishedSearch],
    tasks: Sequence[str],
    found: Sequence[Sequence[MeasuredMerge]],
) -> dict[str, object]:
    rng = np.random.default_rng(_SEED)
    signs = [runs[0].front.metrics[task].sign for task in tasks]
    columns = [
        _columns(run, merges, tasks) for run, merges in zip(runs, found, strict=True)
    ]
    measured = [Y * signs for Y, _ in columns]
    errors = [stderr for _, stderr in columns]
    drawn: list[list[FloatArray]] = [[] for _ in runs]
    paired = []
    for t, task in enumerate(tasks):
        items = [
            _items(run, merges, task) for run, merges in zip(runs, found, strict=True)
        ]
        one = draw_items(items, signs[t], rng)
        paired.append(one is not None)
        for r in range(len(runs)):
            own = one[r] if one else draw_each(measured[r][:, t], errors[r][:, t], rng)
            drawn[r].append(own)
    scale = Scale.of(measured)
    predicted, foreseen = _predicted(runs, tasks, rng)
    return {
        "reference": [s * v for s, v in zip(signs, scale.reference, strict=True)],
        "paired": paired,
        "volumes": {
            "measured": [
                asdict(v)
                for v in volumes(scale, measured, [np.stack(d, 2) for d in drawn])
            ],
            "predicted": [asdict(v) for v in volumes(scale, predicted, foreseen)],
        },
    }


def _columns(
    run: FinishedSearch, merges: Sequence[MeasuredMerge], tasks: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    places = [list(run.front.tasks).index(task) for task in tasks]
    rows = [[merge.measured[place] for place in places] for merge in merges]
    values = np.array([[r.value for r in row] for row in rows], np.float64)
    return values, np.array([[r.stderr for r in row] for row in rows], np.float64)


def _items(
    run: FinishedSearch, merges: Sequence[MeasuredMerge], task: str
) -> list[Items]:
    reader, place = ItemReader(run), list(run.front.tasks).index(task)
    found = []
    for merge in merges:
        pairs = zip(run.front.coefficients, merge.coefficients, strict=True)
        known = {name: value for name, value in pairs if value is not None}
        found.append(reader.read_at(known, merge.measured[place].value, task))
    return found


def _predicted(
    runs: Sequence[FinishedSearch], tasks: Sequence[str], rng: np.random.Generator
) -> tuple[list[FloatArray], list[FloatArray]]:
    fronts, drawn = [], []
    for run in runs:
        places = [list(run.front.tasks).index(task) for task in tasks]
        Y = run.front.utilities(run.front.points, "predicted")[:, places]
        stderr = run.front.stderrs(run.front.points, "predicted")[:, places]
        fronts.append(Y)
        draws = [draw_together(Y[:, t], stderr[:, t], rng) for t in range(len(tasks))]
        drawn.append(np.stack(draws, 2))
    return fronts, drawn
