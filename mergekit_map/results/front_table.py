"""``front.csv``: the points of a front as a table."""

from __future__ import annotations

import csv
import io

from mergekit_map.results.front import KINDS, Front


def front_table(front: Front) -> str:
    """Write the points of a front as CSV, a row per point."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    header = [
        f"{task} {kind} {part}"
        for task in front.tasks
        for kind in KINDS
        for part in ("value", "stderr")
    ]
    writer.writerow(["point", "selected", *front.coefficients, *header])
    for index, point in enumerate(front.points):
        readings = [
            point.readings(kind)[task] for task in front.tasks for kind in KINDS
        ]
        values = [part for r in readings for part in (r.value, r.stderr)]
        coefficients = [point.coefficients[name] for name in front.coefficients]
        chosen = int(index == front.selected)
        writer.writerow([index, chosen, *coefficients, *values])
    return buffer.getvalue()
