"""Small ``front.json`` contents, made by hand, for the tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Reading = tuple[float | None, float | None]  # value, standard error
Row = Sequence[Reading]  # one per task

NOT_MEASURED: Row = [(None, None), (None, None)]
MATH = {"direction": "maximize", "range": [0, 1], "unit": ""}
CODE = {"direction": "minimize", "range": [0, None], "unit": "nats/token"}
FIT = {"n": 8, "r2": 0.99, "loo_r2": 0.9}


def make_front(
    points: Sequence[tuple[Row, Row]],
    anchors: Mapping[str, Row] | None = None,
    merges: Sequence[tuple[tuple[float, float], Row]] = (),
    selected: int = 0,
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Put rows of readings, predicted and measured, into the form of ``front.json``.

    The coefficients are called a and b; those of point i are i / 100 and 0.5.
    """
    tasks = tasks or {"math": MATH, "code": CODE}

    def read(row: Row) -> dict[str, dict[str, float | None]]:
        return {
            task: {"value": value, "stderr": stderr}
            for task, (value, stderr) in zip(tasks, row, strict=True)
        }

    return {
        "version": 1,
        "coefficients": {"a": [0.0, 1.0], "b": [0.0, 1.0]},
        "tasks": {name: {**about, "fit": FIT} for name, about in tasks.items()},
        "selected": selected,
        "reason": "Chosen before.",
        "points": [
            {
                "coefficients": {"a": index / 100, "b": 0.5},
                "predicted": read(predicted),
                "measured": read(measured),
                "recipe": f"recipes/{index:03d}.yml",
            }
            for index, (predicted, measured) in enumerate(points)
        ],
        "anchors": [
            {
                "label": label,
                "coefficients": {"a": 1.0, "b": float(number)},
                "predicted": read([(None, None)] * len(tasks)),
                "measured": read(row),
            }
            for number, (label, row) in enumerate((anchors or {}).items())
        ],
        "merges": [
            {"coefficients": {"a": a, "b": b}, "measured": read(row)}
            for (a, b), row in merges
        ],
    }
