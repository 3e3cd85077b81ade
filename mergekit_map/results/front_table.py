"""The points of a front as a table: ``front.csv`` and a pandas frame."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from mergekit_map.errors import ConfigError
from mergekit_map.results.front import KINDS, UNKNOWN, Front, Merge

if TYPE_CHECKING:
    import pandas

_PARTS = ("value", "stderr")
ENGINE = " engine"  # after the name of a task: what generated its answers


def front_table(front: Front) -> str:
    """Write the points of a front as CSV, one row a point."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    engines = {n: t.engine for n, t in front.tasks.items() if t.engine is not None}
    columns = [(task, kind) for task in front.tasks for kind in KINDS]
    before = [(task, "foretold") for task in front.tasks]
    headings, added = (
        [f"{task} {kind} {part}" for task, kind in some for part in _PARTS]
        for some in (columns, before)
    )
    first = ["point", "selected", *front.coefficients, *headings, "recommended"]
    writer.writerow([*first, *added, *(f"{task}{ENGINE}" for task in engines)])
    for index, point in enumerate(front.points):
        coefficients = [point.coefficients[name] for name in front.coefficients]
        numbers, foretold = (
            [part for column in some for part in _cells(point, *column)]
            for some in (columns, before)
        )
        row = [index, int(index == front.selected), *coefficients, *numbers]
        recommended = int(index in front.recommended)
        writer.writerow([*row, recommended, *foretold, *engines.values()])
    return buffer.getvalue()


def _cells(point: Merge, task: str, kind: str) -> tuple[float | None, float | None]:
    readings = {"measured": point.measured, "predicted": point.predicted}
    reading = (readings.get(kind, point.foretold) or {}).get(task, UNKNOWN)
    return reading.value, reading.stderr


def front_frame(front: Front) -> pandas.DataFrame:
    """Return the same table as a pandas frame with exact numbers, one row a point.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise ConfigError(
            "to_pandas needs pandas, which is not installed; run pip install "
            "'mergekit-map[notebook]'"
        ) from None
    header, *rows = csv.reader(io.StringIO(front_table(front)))
    named = {f"{task}{ENGINE}" for task in front.tasks}
    cells = [
        [
            cell if heading in named else float(cell or math.nan)
            for heading, cell in zip(header, row, strict=True)
        ]
        for row in rows
    ]
    frame = pandas.DataFrame(cells, columns=header)
    kinds = {"point": int, "selected": bool, "recommended": bool}
    return frame.astype(kinds).set_index("point")
