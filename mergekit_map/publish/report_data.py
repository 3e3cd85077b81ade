"""All that a report shows, as plain data: what the page's own script reads.

Tasks, coefficients and readings are lists in one order; a reading is a value and its
standard error, null where it is unknown. Numbers that choose are exact; the grids of
the surrogates are rounded.
"""

from __future__ import annotations

import platform
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mergekit_map.config.specs import SelectSpec
from mergekit_map.files import plain
from mergekit_map.measurement import NO_SINGLE_MODEL
from mergekit_map.publish.measured_merges import measured_merges
from mergekit_map.publish.surfaces import Surfaces, locate
from mergekit_map.results.choosing import judged, preference
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import Front, Kind, Merge, Reading, Task
from mergekit_map.version import __version__

FloatArray = NDArray[np.float64]

_DIGITS = 5  # of the grids: a picture shows no more


def report_content(run: FinishedSearch, surfaces: Surfaces) -> dict[str, Any]:
    """Gather what the page shows of a finished search.

    Raises:
        ArtifactError: a recipe is missing.
    """
    front = run.front
    content = {
        "name": _name(run.folder.path),
        "run": shlex.quote(str(run.folder.path)),
        "facts": _facts(run),
        "coefficients": [
            {"name": name, "bounds": bounds}
            for name, bounds in front.coefficients.items()
        ],
        "order": front.order,
        "tasks": [_task(name, about) for name, about in front.tasks.items()],
        "points": [
            {**_readings(front, point), "recipe": run.folder.read_recipe(index)}
            for index, point in enumerate(front.points)
        ],
        "anchors": [_anchor(front, anchor) for anchor in front.anchors],
        "selected": front.selected,
        "reason": front.reason,
        "start": _start(front),
        "verdicts": judged(front).verdicts,
        "surfaces": _surfaces(run, surfaces),
        "merges": measured_merges(run),
    }
    exact: dict[str, Any] = plain(content)
    return exact


def _name(path: Path) -> str:
    """Call a run what the user calls it, unless that is no name."""
    named = path.is_absolute() or path.name in {"", ".."}
    return path.resolve().name if named else str(path)


def _facts(run: FinishedSearch) -> dict[str, Any]:
    """Say what was searched, and with what."""
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


def _task(name: str, task: Task) -> dict[str, Any]:
    return {
        "name": name,
        "higher": task.metric.higher_is_better,
        "unit": task.unit,
        "range": task.range,
        "fit": task.fit.model_dump(),
    }


def _anchor(front: Front, anchor: Merge) -> dict[str, Any]:
    label = anchor.label
    kind = label if label in NO_SINGLE_MODEL else "model"
    return {"label": label, "kind": kind, **_readings(front, anchor)}


def _readings(front: Front, merge: Merge) -> dict[str, Any]:
    kinds: tuple[Kind, ...] = ("predicted", "measured")
    return {
        "coefficients": [merge.coefficients.get(name) for name in front.coefficients],
        **{
            kind: [_reading(merge.readings(kind)[task]) for task in front.tasks]
            for kind in kinds
        },
    }


def _reading(reading: Reading) -> list[float | None] | None:
    return None if reading.value is None else [reading.value, reading.stderr]


def _start(front: Front) -> dict[str, Any] | None:
    """Give the preference and limits that chose the point; None for an index."""
    select = front.select
    if select.index is not None:
        return None
    prefer = preference(SelectSpec() if select.knee else select, front.tasks)
    limits = select.require or {}
    return {
        "weights": [prefer.get(task, 0.0) for task in front.tasks],
        "limits": [_limit(limits.get(task)) for task in front.tasks],
        "scalarization": select.scalarization,
    }


def _limit(limit: float | str | None) -> str:
    return "" if limit is None else str(limit)


def _surfaces(run: FinishedSearch, surfaces: Surfaces) -> dict[str, Any]:
    points = locate(run, (point.coefficients for point in run.front.points))
    return {
        "kind": surfaces.kind,
        "axes": surfaces.axes,
        "nodes": _rounded(surfaces.nodes),
        "points": points.tolist(),
        "value": [_rounded(surfaces.value[task]) for task in run.front.tasks],
        "stderr": [_rounded(surfaces.stderr[task]) for task in run.front.tasks],
    }


def _rounded(grid: FloatArray) -> Any:
    """Round to significant digits."""
    digits = np.array([float(f"{v:.{_DIGITS}g}") for v in grid.ravel()])
    return digits.reshape(grid.shape).tolist()
