"""front.csv: what later versions add to a row stands at its end."""

from __future__ import annotations

import csv

from fronts import CODE, MATH, NOT_MEASURED, Row, as_json, from_json, make_front

from mergekit_map.hub.markdown import task_heading
from mergekit_map.results.front_table import front_table

ROW: Row = [(0.5, 0.03), (2.0, None)]


def test_recommended_and_foretold_stand_at_the_end_of_a_row() -> None:
    front = make_front([(ROW, ROW), (ROW, NOT_MEASURED)], tasks={"m": MATH, "c": CODE})
    content = as_json(front)
    content["recommended"] = [0]
    content["points"][0]["foretold"] = {
        "m": {"value": 0.4, "stderr": 0.1},
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
    ]
    assert one[12:] == ["1", "0.4", "0.1", "", ""]
    assert other[12:] == ["0", "", "", "", ""]
    assert one[4:12] == ["0.5", "0.03", "0.5", "0.03", "2.0", "", "2.0", ""]


def test_what_generated_the_answers_of_a_task_is_named_where_it_is_no_plain_one() -> (
    None
):
    plain = make_front([(ROW, ROW)], tasks={"m": MATH, "c": CODE})
    front = make_front([(ROW, ROW)], tasks={"m": {**MATH, "engine": "vllm"}, "c": CODE})

    assert "engine" not in front_table(plain)
    assert all("engine" not in task for task in as_json(plain)["tasks"].values())
    assert as_json(front)["tasks"]["m"]["engine"] == "vllm"
    header, row = csv.reader(front_table(front).splitlines())
    assert (header[-1], row[-1]) == ("m engine", "vllm")
    assert row[:-1] == next(csv.reader(front_table(plain).splitlines()[1:]))
    assert task_heading(front, "m") == "m (higher is better, by vLLM)"
    assert task_heading(front, "c") == "c (nats/token, lower is better)"
