"""The points of a front as a table: ``front.csv`` and a pandas frame."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mergekit_map.errors import ConfigError
from mergekit_map.results.front import KINDS, UNKNOWN, Front, Merge

if TYPE_CHECKING:
    import pandas


def front_table(front: Front) -> str:
    """Write the points of a front as CSV, one row a point."""
    buffer, rows = io.StringIO(), [*_rows(front)]
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _rows(front: Front) -> Iterator[dict[str, Any]]:
    """Yield the cells of each point, by their headings."""
    engines = {f"{n} engine": t.engine for n, t in front.tasks.items() if t.engine}
    for index, point in enumerate(front.points):
        row: dict[str, Any] = {"point": index, "selected": int(index == front.selected)}
        row |= {name: point.coefficients[name] for name in front.coefficients}
        row |= _cells(front, point, *KINDS)
        row["recommended"] = int(index in front.recommended)
        yield row | _cells(front, point, "foretold") | engines


def _cells(front: Front, point: Merge, *kinds: str) -> dict[str, Any]:
    cells = {}
    for task, kind in itertools.product(front.tasks, kinds):
        reading = (getattr(point, kind) or {}).get(task, UNKNOWN)
        cells[f"{task} {kind} value"] = reading.value
        cells[f"{task} {kind} stderr"] = reading.stderr
    return cells


def front_frame(front: Front) -> pandas.DataFrame:
    """Return the same table as a pandas frame with exact numbers."""
    try:
        import pandas
    except ImportError:
        raise ConfigError(
            "to_pandas needs pandas, which is not installed; run pip install "
            "'mergekit-map[notebook]'"
        ) from None
    frame = pandas.DataFrame([*_rows(front)])
    named = {f"{task} engine" for task in front.tasks}
    kinds: dict[str, type] = {name: float for name in frame if name not in named}
    kinds |= {"point": int, "selected": bool, "recommended": bool}
    return frame.astype(kinds).set_index("point")
