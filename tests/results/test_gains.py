"""What a chosen merge gains, on fronts made by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fronts import ANCHORS, CHOSEN, MATH, NOT_MEASURED, Row, as_json, front, make_front
from scipy import stats

from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front
from mergekit_map.results.gains import gains
from mergekit_map.results.limits import limits_in_words
from mergekit_map.results.selection import MERGE, advice


def test_no_share_is_kept_of_a_gain_that_noise_explains() -> None:
    """A parent with 27 of 60 answers beside the base with 24 gains nothing."""
    noise = {**ANCHORS, "one": [(0.55, 0.06), (2.4, 0.05)]}

    found = gains(make_front([(CHOSEN, CHOSEN)], noise))

    assert found.kept == {"math": None, "code": pytest.approx(0.5 / 0.6)}
    assert found.share("math", 0.9) is None
    assert answer(make_front([(CHOSEN, CHOSEN)], noise)).table[0][3] == "-"


def test_a_point_that_was_not_measured_is_held_against_others_as_predicted() -> None:
    found = gains(front(NOT_MEASURED))

    assert found.sources == {"math": "predicted", "code": "predicted"}
    soup = found.over("soup")
    assert soup["code"].amount == pytest.approx(2.2 - 2.02)
    # Its documents may differ from the soup's as much as those of any other merge.
    assert soup["code"].stderr == pytest.approx(math.hypot(0.04, 0.04))
    assert soup["math"].stderr == pytest.approx(math.hypot(0.03, 0.04 * math.sqrt(2)))


def test_verdicts_are_holms_of_all_comparisons_together() -> None:
    """A second implementation: reject two-sided tests while p <= 0.05 / (n - i)."""
    rng, tasks = np.random.default_rng(2), {"math": MATH, "text": MATH}
    for error in [0.1] * 50 + [0.02] * 50:  # as much as merges differ by, or a fifth
        values = 0.5 + rng.normal(size=(5, 2)) / 10
        rows = [[(value, error) for value in row] for row in values]
        anchors = dict(zip(("base", "one", "other", "soup"), rows[1:], strict=True))
        found = gains(make_front([(rows[0], rows[0])], anchors, tasks=tasks))
        tested = [one for rival in found.rivals.values() for one in rival.values()]
        p = 2 * stats.norm.sf([abs(one.amount) / error / 2**0.5 for one in tested])
        wanted = ["noise"] * 6
        for i, place in enumerate(np.argsort(p)):
            if p[place] > min(0.05 / (6 - i), 2 * stats.norm.sf(2)):
                break
            wanted[place] = "better" if tested[place].amount > 0 else "worse"
        assert [one.verdict for one in tested] == wanted


POINTS = [
    ([(0.72, 0.01), (1.9, 0.02)], [(0.70, 0.04), (2.0, 0.05)]),
    ([(0.50, 0.01), (1.5, 0.02)], [(None, None), (None, None)]),
]
HELD_OUT_ANCHORS: dict[str, Row] = {
    "base": [(0.50, 0.04), (2.5, 0.05)],
    "one": [(0.60, 0.04), (1.9, 0.05)],
    "other": [(0.40, 0.04), (1.8, 0.05)],
    "soup": [(0.70, 0.04), (2.05, 0.05)],
}


def measured(math_value: float, code: float) -> dict[str, Any]:
    known = {"math": (math_value, 0.05), "code": (code, 0.06)}
    return {task: {"value": v, "stderr": e} for task, (v, e) in known.items()}


def held_out_front(anchors: dict[str, Row] = HELD_OUT_ANCHORS, **changes: Any) -> Front:
    def merge(a: float, b: float, measured: dict[str, Any], **label: str) -> Any:
        return {"coefficients": {"a": a, "b": b}, "measured": measured, **label}

    merges = [
        merge(0.0, 0.5, measured(0.66, 2.1)),
        merge(1.0, 0.0, measured(0.51, 2.5), label="base"),
        merge(1.0, 3.0, measured(0.655, 2.05), label="soup"),
        merge(1.0, 2.0, {"code": {"value": 1.85, "stderr": 0.06}}, label="other"),
    ]
    math_, code = [[0.02], [0.01, 0.02]], [[0.02], [0.03, 0.02], [0.04, 0.03, 0.02]]
    holdout = {
        "documents": {"math": 100, "code": 100},
        "choices": 1,
        "merges": merges,
        "differences": {
            "math": {"items": 100, "merges": [0, 1, 2], "stderr": math_},
            "code": {"items": 100, "merges": [0, 1, 2, 3], "stderr": code},
        },
        **changes,
    }
    # Merges are counted through points and anchors.
    apart = {"items": 200, "merges": [0, 2], "stderr": [[0.01]]}
    return make_front(POINTS, anchors, holdout=holdout, differences={"code": apart})


def test_a_gain_that_held_out_documents_do_not_show_is_named() -> None:
    def said(soup: float) -> str:
        """Write the findings where the soup has this loss on held-out documents."""
        merges = as_json(held_out_front())["holdout"]["merges"]
        merges[2]["measured"]["code"]["value"] = soup
        anchors = {**HELD_OUT_ANCHORS, "soup": [(0.7, 0.04), (2.3, 0.05)]}
        return " ".join(answer(held_out_front(anchors, merges=merges)).findings)

    # Beside an error of 0.03, a gain of 0.05 is noise, and one of 0.15 is none.
    assert said(2.15).startswith("Not confirmed on held-out data: ")
    assert "+0.050 ± 0.030 on code over the soup (in the" in said(2.15)
    assert said(2.25) == ""


def test_a_gain_on_held_out_documents_alone_is_no_reason_for_the_soup() -> None:
    # In the search the soup is as good; on held-out documents it is worse on code.
    soup, one = [(0.7, 0.04), (2.0, 0.05)], [(0.5, 0.04), (2.5, 0.05)]
    anchors: dict[str, Row] = {**HELD_OUT_ANCHORS, "soup": soup, "one": one}
    front = held_out_front(anchors)
    merges = as_json(front)["holdout"]["merges"]
    merges[2]["measured"]["code"]["value"] = 2.25

    assert advice(front) == "soup"
    assert advice(held_out_front(anchors, merges=merges)) == MERGE

    # Beside a base that is as good on math, it still counts.
    values = [(0.6, 2.05), (0.5, 2.5), (0.505, 2.05)]
    for merge, (math_value, code) in zip(merges, values, strict=False):
        merge["measured"] = measured(math_value, code)
    assert advice(held_out_front(anchors, merges=merges)) == MERGE


def test_a_limit_without_a_parent_on_held_out_documents_is_that_of_the_search() -> None:
    limited = {"select": SelectSpec(require={"math": "30%"})}
    front = held_out_front().model_copy(update=limited)

    assert limits_in_words(front).endswith("; held-out data cannot tell")


def test_the_gain_is_that_on_held_out_documents() -> None:
    found = gains(held_out_front())
    in_search = gains(held_out_front(), in_search=True)

    assert set(found.sources.values()) == {"held-out"}
    assert found.over("base")["code"].amount == pytest.approx(0.4)
    assert found.over("base")["code"].stderr == 0.02
    assert in_search.over("base")["code"].amount == pytest.approx(0.5)
    assert in_search.over("base")["code"].stderr == 0.01  # item by item
    soup = in_search.over("soup")["code"]
    assert soup.stderr == pytest.approx(math.hypot(0.05, 0.05))
    # No parent was measured there on math.
    assert found.kept == {"math": None, "code": pytest.approx(0.4 / 0.65)}
    # What is only predicted is compared on the documents of the search.
    other = gains(held_out_front().model_copy(update={"selected": 1}))
    assert other.over("base")["math"].reading.value == 0.50  # 0.51 held out
    assert other.over("base")["math"].amount == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("limit", "where"),
    [  # It has 2.0 in the search, and 2.1 ± 0.02 beside the base on held-out data.
        (2.2, "; on held-out data it meets what is asked"),
        (2.09, "; on held-out data it is within the noise of what is asked"),
        (2.05, "; on held-out data it misses code at most 2.05 nats"),
    ],
)
def test_a_limit_is_tried_on_held_out_documents(limit: float, where: str) -> None:
    select = SelectSpec(require={"code": limit})
    front = held_out_front().model_copy(update={"select": select})
    met = "meets its limit on code on the data of the search"
    assert limits_in_words(front).startswith(f"{met}{where}")
