"""Small fronts, made by hand, for the tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mergekit_map.results.front import Front, Reading
from mergekit_map.results.records import write_record
from mergekit_map.results.run_folder import Manifest, RunFolder
from mergekit_map.utils.files import write_atomically

Row = Sequence[tuple[float | None, float | None]]  # value and error, per task

NOT_MEASURED: Row = [(None, None), (None, None)]
MATH = {"direction": "maximize", "range": [0, 1], "unit": ""}
CODE = {"direction": "minimize", "range": [0, None], "unit": "nats/token"}
FIT = {"n": 8, "r2": 0.99, "loo_r2": 0.95}


def make_front(
    points: Sequence[tuple[Row, Row]],
    anchors: Mapping[str, Row] | None = None,
    merges: Sequence[tuple[tuple[float, float], Row]] = (),
    selected: int = 0,
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    **others: Any,
) -> Front:
    """Put rows of readings, predicted and measured, into a front.

    The coefficients are called a and b; those of point i are i / 100 and 0.5.
    """
    tasks = tasks or {"math": MATH, "code": CODE}

    def read(row: Row) -> dict[str, dict[str, float | None]]:
        return {
            task: Reading.of(value, stderr).model_dump()
            for task, (value, stderr) in zip(tasks, row, strict=True)
        }

    def merge(a: float, b: float, **rows: Row) -> dict[str, Any]:
        readings = {kind: read(row) for kind, row in rows.items()}
        return {"coefficients": {"a": a, "b": b}, **readings}

    unknown = [(None, None)] * len(tasks)
    content = {
        "version": 1,
        "coefficients": {"a": [0.0, 1.0], "b": [0.0, 1.0]},
        "tasks": {name: {"fit": FIT, **about} for name, about in tasks.items()},
        "selected": selected,
        "reason": "Chosen before.",
        "points": [
            merge(index / 100, 0.5, predicted=predicted, measured=measured)
            for index, (predicted, measured) in enumerate(points)
        ],
        "anchors": [
            {"label": label, **merge(1.0, float(n), predicted=unknown, measured=row)}
            for n, (label, row) in enumerate((anchors or {}).items())
        ],
        "merges": [merge(a, b, measured=row) for (a, b), row in merges],
    }
    return from_json({**content, **others})


CHOSEN: Row = [(0.70, 0.04), (2.0, 0.05)]
ANCHORS: dict[str, Row] = {
    "base": [(0.50, 0.04), (2.5, 0.05)],
    "one": [(0.75, 0.04), (2.4, 0.05)],
    "other": [(0.40, 0.04), (1.9, 0.05)],
    "soup": [(0.69, 0.04), (2.2, 0.05)],
}
# Point, base, one, other and soup, in the order that differences count them in.
APART = {
    "items": 200,
    "merges": [0, 1, 2, 3, 4],
    "stderr": [[0.01], [0.02] * 2, [0.03] * 3, [0.04] * 4],
}


def front(measured: Row = CHOSEN, **others: Any) -> Front:
    """Put one point beside four reference points."""
    predicted: Row = [(0.71, 0.03), (2.02, 0.04)]
    others.setdefault("differences", {"code": APART})
    return make_front([(predicted, measured)], ANCHORS, **others)


def write_folder(run: Path, front: Front) -> None:
    """Write what a front needs beside it to be chosen from: a manifest, and recipes."""
    identity: Any = {"method": "linear", "models": {"one": "1", "other": "2"}}
    places = {"a": [["models", 0, "weight"]], "b": [["models", 1, "weight"]]}
    identity |= {"coefficients": places, "remainder": [], "dtype": None}
    models = [{"model": "one"}, {"model": "other"}]
    identity |= {"out_dtype": None, "configuration": {"models": models}}
    known = {"mergekit_map": "0", "python": "3", "packages": {}, "config": ""}
    known |= {"directory": str(run), "seed": 0, "random_seed": None, "merge": ""}
    known |= {"identity": identity, "definitions": dict.fromkeys(front.tasks, "")}
    write_record(RunFolder(run).manifest, Manifest(**known))
    for index, point in enumerate(front.points):
        weights = zip(("one", "other"), point.coefficients.values(), strict=True)
        models = [{"model": model, "weight": weight} for model, weight in weights]
        recipe = {"merge_method": "linear", "models": models}
        write_atomically(run / f"recipes/{index:03d}.yml", yaml.safe_dump(recipe))


def from_json(content: Mapping[str, Any]) -> Front:
    """Read what was changed as JSON."""
    return Front.model_validate_json(json.dumps(content))


def as_json(front: Front) -> dict[str, Any]:
    """Give what ``front.json`` holds."""
    return front.model_dump(mode="json")
