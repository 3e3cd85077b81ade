"""The points of a front as a table: ``front.csv`` and a pandas frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mergekit_map.errors import ConfigError
from mergekit_map.results.front import KINDS, UNKNOWN, Front, Merge

if TYPE_CHECKING:
    import pandas

ENGINE = " engine"  # after the name of a task: what generated its answers


def front_table(front: Front) -> str:
    """Write the points of a front as CSV, one row a point."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(_rows(front))
    return buffer.getvalue()


def _rows(front: Front) -> Iterator[list[Any]]:
    """Yield the headings, then the cells of each point."""
    engines = {n: t.engine for n, t in front.tasks.items() if t.engine is not None}
    columns = [(task, kind) for task in front.tasks for kind in KINDS]
    before = [(task, "foretold") for task in front.tasks]
    headings, added = (
        [f"{task} {kind} {part}" for task, kind in some for part in ("value", "stderr")]
        for some in (columns, before)
    )
    first = ["point", "selected", *front.coefficients, *headings, "recommended"]
    yield [*first, *added, *(f"{task}{ENGINE}" for task in engines)]
    for index, point in enumerate(front.points):
        coefficients = [point.coefficients[name] for name in front.coefficients]
        numbers, foretold = (
            [part for column in some for part in _cells(point, *column)]
            for some in (columns, before)
        )
        row = [index, int(index == front.selected), *coefficients, *numbers]
        recommended = int(index in front.recommended)
        yield [*row, recommended, *foretold, *engines.values()]


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
    header, *rows = _rows(front)
    frame = pandas.DataFrame(rows, columns=header)
    named = {f"{task}{ENGINE}" for task in front.tasks}
    kinds: dict[str, type] = {name: float for name in header if name not in named}
    kinds |= {"point": int, "selected": bool, "recommended": bool}
    return frame.astype(kinds).set_index("point")
