"""All that a report shows, as plain data: what the page's own script reads.

Tasks, coefficients and readings are lists in one order; a reading is a value and its
standard error, null where it is unknown. Numbers that choose are exact; the grids of
the surrogates are rounded.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mergekit_map import __version__
from mergekit_map.anchors import NO_SINGLE_MODEL
from mergekit_map.config import parse_select
from mergekit_map.errors import ArtifactError
from mergekit_map.frontfile import Front
from mergekit_map.publish.measured_merges import measured_merges
from mergekit_map.publish.run_folder import RunFolder
from mergekit_map.publish.surfaces import Surfaces, locate
from mergekit_map.specs import SelectSpec
from mergekit_map.study.choosing import preference
from mergekit_map.study.results import plain
from mergekit_map.verdicts import verdicts

FloatArray = NDArray[np.float64]

_DIGITS = 5  # of the grids: a picture shows no more


def report_content(run: RunFolder, surfaces: Surfaces) -> dict[str, Any]:
    """Gather what the page shows of a finished search.

    Raises:
        ArtifactError: a recipe is missing.
    """
    front = run.front
    content = {
        "name": _name(run.path),
        "run": shlex.quote(str(run.path)),
        "facts": _facts(run),
        "coefficients": [
            {"name": name, "bounds": bounds}
            for name, bounds in front["coefficients"].items()
        ],
        "order": front.get("order"),
        "tasks": [_task(name, about) for name, about in front["tasks"].items()],
        "points": [_point(run, point) for point in front["points"]],
        "anchors": [_anchor(front, anchor) for anchor in front["anchors"]],
        "selected": front["selected"],
        "reason": front["reason"],
        "start": _start(front),
        "verdicts": verdicts(front),
        "surfaces": _surfaces(run, surfaces),
        "merges": measured_merges(run),
    }
    exact: dict[str, Any] = plain(content)
    return exact


def _name(path: Path) -> str:
    """Call a run what the user calls it, unless that is no name."""
    named = path.is_absolute() or path.name in {"", ".."}
    return path.resolve().name if named else str(path)


def _facts(run: RunFolder) -> dict[str, Any]:
    """Say what was searched, and with what."""
    versions = {
        "mergekit-map": run.manifest["mergekit_map"],
        **run.manifest["packages"],
        "Python": run.manifest["python"],
    }
    return {
        "method": run.manifest["identity"]["method"],
        "surrogate": run.front.get("surrogate"),
        "seed": run.manifest["seed"],
        "searched_with": versions,
        "page_by": {"mergekit-map": __version__, "Python": platform.python_version()},
    }


def _task(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "higher": about["direction"] == "maximize",
        "unit": about["unit"],
        "range": about["range"],
        "fit": about["fit"],
    }


def _point(run: RunFolder, point: Mapping[str, Any]) -> dict[str, Any]:
    path = run.path / point["recipe"]
    try:
        recipe = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}; search again") from None
    return {**_readings(run.front, point), "recipe": recipe}


def _anchor(front: Mapping[str, Any], anchor: Mapping[str, Any]) -> dict[str, Any]:
    label = anchor["label"]
    kind = label if label in NO_SINGLE_MODEL else "model"
    return {"label": label, "kind": kind, **_readings(front, anchor)}


def _readings(front: Mapping[str, Any], merge: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "coefficients": [merge["coefficients"][name] for name in front["coefficients"]],
        **{
            kind: [_reading(merge[kind][task]) for task in front["tasks"]]
            for kind in ("predicted", "measured")
        },
    }


def _reading(reading: Mapping[str, Any]) -> list[Any] | None:
    known = reading["value"] is not None
    return [reading["value"], reading["stderr"]] if known else None


def _start(front: Front) -> dict[str, Any] | None:
    """Give the preference and limits that chose the point; None for an index."""
    select = parse_select(front.get("select", {}))
    if select.index is not None:
        return None
    prefer = preference(SelectSpec() if select.knee else select, front["tasks"])
    limits = select.require or {}
    return {
        "weights": [prefer.get(task, 0.0) for task in front["tasks"]],
        "limits": [_limit(limits.get(task)) for task in front["tasks"]],
        "scalarization": select.scalarization,
    }


def _limit(limit: float | str | None) -> str:
    return "" if limit is None else str(limit)


def _surfaces(run: RunFolder, surfaces: Surfaces) -> dict[str, Any]:
    points = locate(run, (point["coefficients"] for point in run.front["points"]))
    return {
        "kind": surfaces.kind,
        "axes": surfaces.axes,
        "nodes": _rounded(surfaces.nodes),
        "points": points.tolist(),
        "value": [_rounded(surfaces.value[task]) for task in run.front["tasks"]],
        "stderr": [_rounded(surfaces.stderr[task]) for task in run.front["tasks"]],
    }


def _rounded(grid: FloatArray) -> Any:
    """Round to significant digits."""
    digits = np.array([float(f"{v:.{_DIGITS}g}") for v in grid.ravel()])
    return digits.reshape(grid.shape).tolist()
