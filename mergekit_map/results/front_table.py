"""The points of a front as a table: ``front.csv`` and a pandas frame."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from mergekit_map.errors import ConfigError
from mergekit_map.results.front import KINDS, UNKNOWN, Front

if TYPE_CHECKING:
    import pandas

_PARTS = ("value", "stderr")
ENGINE = " engine"  # after the name of a task: what generated its answers


def front_table(front: Front) -> str:
    """Write the points of a front as CSV, one row a point."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    header = [
        f"{task} {kind} {part}"
        for task in front.tasks
        for kind in KINDS
        for part in _PARTS
    ]
    added = [f"{task} foretold {part}" for task in front.tasks for part in _PARTS]
    header = ["point", "selected", *front.coefficients, *header]
    engines = {n: t.engine for n, t in front.tasks.items() if t.engine is not None}
    named = [f"{task}{ENGINE}" for task in engines]
    writer.writerow([*header, "recommended", *added, *named])
    for index, point in enumerate(front.points):
        readings = [
            point.readings(kind)[task] for task in front.tasks for kind in KINDS
        ]
        known = point.foretold or {}
        foretold = [known.get(task, UNKNOWN) for task in front.tasks]
        values, before = (
            [part for r in some for part in (r.value, r.stderr)]
            for some in (readings, foretold)
        )
        coefficients = [point.coefficients[name] for name in front.coefficients]
        chosen = int(index == front.selected)
        recommended = int(index in front.recommended)
        row = [index, chosen, *coefficients, *values, recommended, *before]
        writer.writerow([*row, *engines.values()])
    return buffer.getvalue()


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
        [c if h in named else _number(c) for h, c in zip(header, row, strict=True)]
        for row in rows
    ]
    frame = pandas.DataFrame(cells, columns=header)
    kinds = {"point": int, "selected": bool, "recommended": bool}
    return frame.astype(kinds).set_index("point")


def _number(cell: str) -> float:
    return float(cell) if cell else math.nan
