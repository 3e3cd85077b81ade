"""All that a report shows, as plain data: what the page's own script reads.

Tasks, coefficients and readings are lists in one order; a reading is a value and its
standard error, null where it is unknown, and the number of documents that it is from
where these are not all. Numbers that choose are exact; the grids of
the surrogates are rounded.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mergekit_map.config.specs import SelectSpec
from mergekit_map.files import plain
from mergekit_map.measurement import NO_SINGLE_MODEL
from mergekit_map.publish.measured_merges import MeasuredMerge
from mergekit_map.publish.report_history import history_content
from mergekit_map.publish.report_points import points_content
from mergekit_map.publish.surfaces import Surfaces
from mergekit_map.results.anchor_values import anchor_values
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.foretold import foretellings
from mergekit_map.results.front import KINDS, Front, Merge, Reading
from mergekit_map.results.measured_task import Task
from mergekit_map.results.promise_words import confirmed_in_words
from mergekit_map.results.underway import unfinished_in_words
from mergekit_map.results.verdict_words import foretellings_in_words
from mergekit_map.search.arrays import finite
from mergekit_map.version import __version__


def report_content(
    run: FinishedSearch, surfaces: Surfaces, merges: Sequence[MeasuredMerge]
) -> Mapping[str, object]:
    """Gather what the page shows of a finished search.

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
    """Call a run what the user calls it, unless that is no name."""
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
    """Give the anchors, with the errors that margins count."""
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
    """Give the preference and limits that chose the point; None for an index."""
    select = front.select
    if select.index is not None:
        return None
    prefer = (SelectSpec() if select.knee else select).preference(front.tasks)
    limits = select.require or {}
    return {
        "weights": [prefer.get(task, 0.0) for task in front.tasks],
        "limits": [str(limits.get(task, "")) for task in front.tasks],
        "not_worse_than": select.rivals,
        "margin": select.margin,
        "scalarization": select.scalarization,
    }


def _tested(front: Front) -> dict[str, object]:
    """Hold what was predicted before measuring against what was measured."""
    found, place = list(foretellings(front)), list(front.tasks)
    held = sum(test.held for test in found)
    return {
        "words": foretellings_in_words(held, len(found)) if found else "",
        "rows": [
            {
                "merge": _called(front, test.merge),
                "task": place.index(test.task),
                "foretold": (test.foretold.value, test.foretold.stderr),
                "measured": (test.measured.value, test.measured.stderr),
                "errors": test.errors,
                "held": test.held,
            }
            for test in found
        ],
    }


def _called(front: Front, merge: Merge) -> str:
    """Call a merge by its number on the front, or by its weights."""
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
