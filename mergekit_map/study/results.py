"""What a study leaves in its run folder, in forms that other programs read.

``front.json`` and ``front.csv`` hold the front, ``surrogates.json`` what predicted it,
``manifest.json``, written last, what made it. A run folder without a manifest belongs
to a search that has not finished.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mergekit_map.errors import ArtifactError
from mergekit_map.files import write_atomically
from mergekit_map.study.log import Evaluation, evaluation_key
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Study, StudyResult

FloatArray = NDArray[np.float64]

VERSION = 1


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with exact numbers; NaN and infinity become null."""
    write_atomically(path, json.dumps(plain(content), indent=1, allow_nan=False) + "\n")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a file of a run folder.

    Raises:
        ArtifactError: it is not there, not JSON, or of another version.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(
            f"{path.parent} has no {path.name}, so there is no {what}; finish the "
            f"search with: mergekit-map search CONFIG {path.parent}"
        ) from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from None
    if content.get("version") != VERSION:
        raise ArtifactError(
            f"{path} is of version {content.get('version')}, this program reads "
            f"version {VERSION}; search again with this version"
        )
    return content


def front_content(
    study: Study, result: StudyResult, log: Iterable[Evaluation]
) -> dict[str, Any]:
    """Assemble ``front.json``: tasks, front points, anchors, and the chosen point.

    ``predicted`` and ``measured`` map each task to ``value`` and ``stderr``, in the
    task's own units and direction; null where unknown. ``merges`` are those that were
    measured and are neither points nor anchors.
    """
    evaluations = list(log)
    points = _points(study, result, result.front, evaluations)
    for index, point in enumerate(points):
        point["recipe"] = f"recipes/{index:03d}.yml"
    anchors = _points(study, result, list(study.anchors.values()), evaluations)
    labels = list(study.anchors)
    return {
        "version": VERSION,
        "coefficients": {name: list(b) for name, b in study.bounds.items()},
        "groups": {label: dict(group) for label, group in result.groups.items()},
        "order": result.order,
        "tasks": {task: _task(study, result, task) for task in study.tasks},
        "surrogate": study.search.surrogate,
        "selected": result.selected,
        "points": points,
        "anchors": [{"label": a, **p} for a, p in zip(labels, anchors, strict=True)],
        "merges": _other_merges(study, [*points, *anchors], evaluations),
    }


def measured_point(
    study: Study, point: Mapping[str, Any], log: Iterable[Evaluation]
) -> dict[str, Any]:
    """Complete a point of ``front.json`` with what the log has measured there."""
    seen = {e.key: e for e in matching(study, log)}
    measured = {}
    for task in study.tasks:
        found = seen.get(evaluation_key(point["coefficients"], task))
        measured[task] = {
            "value": found.value if found else None,
            "stderr": found.stderr if found else None,
        }
    return {**point, "measured": measured}


def _task(study: Study, result: StudyResult, task: str) -> dict[str, Any]:
    metric = study.tasks[task]
    return {
        "direction": "maximize" if metric.higher_is_better else "minimize",
        "range": [metric.lower, metric.upper],
        "unit": metric.unit,
        "fit": result.surrogates[task].to_dict()["quality"],
    }


def _points(
    study: Study,
    result: StudyResult,
    coefficients: Sequence[Mapping[str, float]],
    evaluations: Sequence[Evaluation],
) -> list[dict[str, Any]]:
    X = np.array([study.vector(c) for c in coefficients])
    rows, inside = _surrogate_rows(study, result, X)
    predicted = {
        t: (s.predict(rows), s.stderr(rows)) for t, s in result.surrogates.items()
    }
    points = []
    for row, named in enumerate(coefficients):
        # Outside the sampled box a quadratic is a guess, and none is shown.
        values = {
            task: {"value": float(value[row]), "stderr": float(stderr[row])}
            if inside[row]
            else {"value": None, "stderr": None}
            for task, (value, stderr) in predicted.items()
        }
        point = {"coefficients": dict(named), "predicted": values}
        points.append(measured_point(study, point, evaluations))
    return points


def _surrogate_rows(
    study: Study, result: StudyResult, X: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Say merges (k, d) in the coefficients of the surrogates.

    Returns them and which of them lie where surrogates were fitted.
    """
    if not result.groups:
        return X, np.all((study.box[:, 0] <= X) & (study.box[:, 1] >= X), axis=1)
    vectors = np.array([study.vector(group) for group in result.groups.values()])
    rows = X @ np.linalg.pinv(vectors)
    lower, upper = next(iter(result.surrogates.values())).bounds.T
    clipped = np.clip(rows, lower, upper)  # rounding may leave the box, or the plane
    return clipped, np.isclose(clipped @ vectors, X, rtol=0, atol=1e-9).all(axis=1)


def _other_merges(
    study: Study,
    shown: Iterable[Mapping[str, Any]],
    evaluations: Iterable[Evaluation],
) -> list[dict[str, Any]]:
    known = {evaluation_key(merge["coefficients"], "") for merge in shown}
    unknown = {"value": None, "stderr": None}
    found: dict[Any, dict[str, Any]] = {}
    for e in matching(study, evaluations):
        key = evaluation_key(e.coefficients, "")
        if key in known:
            continue
        if key not in found:
            measured = {task: dict(unknown) for task in study.tasks}
            found[key] = {"coefficients": dict(e.coefficients), "measured": measured}
        found[key]["measured"][e.task] = {"value": e.value, "stderr": e.stderr}
    return list(found.values())


def front_table(content: Mapping[str, Any]) -> str:
    """Write the points of ``front.json`` as CSV, a row per point."""
    tasks, names = list(content["tasks"]), list(content["coefficients"])
    readings = [
        (kind, task, part)
        for task in tasks
        for kind in ("predicted", "measured")
        for part in ("value", "stderr")
    ]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    header = [f"{task} {kind} {part}" for kind, task, part in readings]
    writer.writerow(["point", "selected", *names, *header])
    for index, point in enumerate(content["points"]):
        values = [point[kind][task][part] for kind, task, part in readings]
        coefficients = [point["coefficients"][name] for name in names]
        chosen = int(index == content["selected"])
        writer.writerow([index, chosen, *coefficients, *plain(values)])
    return buffer.getvalue()


def surrogates_content(study: Study, result: StudyResult) -> dict[str, Any]:
    """Assemble ``surrogates.json``."""
    return {
        "version": VERSION,
        "coefficients": list(result.groups or study.bounds),
        "groups": {label: dict(group) for label, group in result.groups.items()},
        "tasks": {task: s.to_dict() for task, s in result.surrogates.items()},
    }


def plain(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
