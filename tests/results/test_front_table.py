"""front.csv: what later versions add to a row stands at its end."""

from __future__ import annotations

import csv

from fronts import CODE, MATH, NOT_MEASURED, Row, as_json, from_json, make_front

from mergekit_map.results.front_table import front_table

ROW: Row = [(0.5, 0.03), (2.0, None)]


def test_recommended_foretold_and_estimated_stand_at_the_end_of_a_row() -> None:
    front = make_front([(ROW, ROW), (ROW, NOT_MEASURED)], tasks={"m": MATH, "c": CODE})
    content = as_json(front)
    content["recommended"] = [0]
    content["points"][0]["foretold"] = {
        "m": {"value": 0.4, "stderr": 0.1},
        "c": {"value": None, "stderr": None},
    }
    content["points"][1]["estimated"] = {
        "m": {"value": 0.3, "stderr": 0.2, "documents": 24},
        "c": {"value": None, "stderr": None},
    }

    header, one, other = csv.reader(front_table(from_json(content)).splitlines())

    assert header[:4] == ["point", "selected", "a", "b"]
    assert header[4:8] == [
        *("m predicted value", "m predicted stderr"),
        *("m measured value", "m measured stderr"),
    ]
    assert header[12:] == [
        "recommended",
        *("m foretold value", "m foretold stderr"),
        *("c foretold value", "c foretold stderr"),
        *("m estimated value", "m estimated stderr", "m estimated documents"),
        *("c estimated value", "c estimated stderr", "c estimated documents"),
    ]
    assert one[12:] == ["1", "0.4", "0.1", "", "", *6 * [""]]
    assert other[12:] == ["0", "", "", "", "", "0.3", "0.2", "24", "", "", ""]
    assert one[4:12] == ["0.5", "0.03", "0.5", "0.03", "2.0", "", "2.0", ""]
