"""The screen of browse, by its keys: what it shows at any width, what it asks for."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fronts import CODE, MATH, NOT_MEASURED, as_json, from_json, make_front
from screens import press, run_apart, settled
from textual.binding import Binding

from mergekit_map.browse.app import Browser
from mergekit_map.browse.state import View
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front
from mergekit_map.results.run_folder import RunFolder

# Four models and four tasks with long names, which are wide to show.
MODELS = (
    "mistral-french-instruct-v2",
    "german-reading-7b",
    "code-llama-python-ft",
    "math-shepherd-merged",
)
TASKS = (
    "french_reading_comprehension_choice",
    "german_reading_loss",
    "python_completion_pass_at_1",
    "gsm8k_flexible_extract",
)
CHOSEN = 4


def wide_front() -> Front:
    """Every fourth point is measured; all numbers of a point tell it from others."""
    first, errors = (0.61234, 2.5432, 0.3312, 1.1234), (0.0123, 0.0231, 0.014, 0.0215)
    rows = []
    for i in range(12):
        moved = zip(first, (0.01, -0.02, 0.003, 0.02), errors, strict=True)
        row = [(start + step * i, error) for start, step, error in moved]
        measured = [(value + 0.001, error) for value, error in row]
        rows.append((row, NOT_MEASURED * 2 if i % 4 else measured))
    values = {"base": (0.5, 3.1, 0.2, 1.9), "soup": (0.55, 2.7, 0.25, 1.5)}
    for k, model in enumerate(MODELS):
        values[model] = (0.5 + 0.03 * k, 2.9 - 0.1 * k, 0.22 + 0.01 * k, 1.7 - 0.1 * k)
    errors = (0.01, 0.02, 0.01, 0.02)
    anchors = {label: [*zip(row, errors, strict=True)] for label, row in values.items()}
    tasks = dict(zip(TASKS, [MATH, CODE] * 2, strict=True))
    content = as_json(
        make_front(rows, anchors, tasks=tasks, selected=CHOSEN, recommended=[4, 8])
    )
    content["coefficients"] = {model: [0.0, 1.0] for model in MODELS}
    for i, point in enumerate(content["points"]):
        weights = {m: 0.1 + 0.05 * i + 0.111 * k for k, m in enumerate(MODELS)}
        point["coefficients"] = weights
    for anchor in content["anchors"]:
        rest = 0.25 if anchor["label"] == "soup" else 0.0
        weights = {m: 1.0 if m == anchor["label"] else rest for m in MODELS}
        anchor["coefficients"] = weights
    return from_json(content)


def listed(lines: list[str]) -> list[int]:
    """Read the points of the list, from the top."""
    rows = (re.match(r" (\d+) [>*+!? ]*~?[\d.]+ ", line) for line in lines)
    return [int(row[1]) for row in rows if row]


@pytest.mark.parametrize("width", [60, 120])
def test_no_number_of_a_point_is_lost(width: int) -> None:
    front = wide_front()

    seen = press(front, size=(width, 70))

    said = " ".join(seen.text.split())
    beside = "│" if width == 120 else ""
    found = answer(front)
    for cell in (*(c for row in found.table for c in row[2:]), found.sample):
        assert all(word in said.replace(beside, "") for word in cell.split())
    for index, point in enumerate(front.points):
        (row,) = [x for x in seen.lines if re.match(rf" {index} [>*]* ", x)]
        readings = point.measured if point.is_measured(*TASKS) else point.predicted
        for reading in readings.values():
            assert f"{reading.value:.4g}" in row


def test_it_opens_on_the_chosen_merge_at_its_place_along_the_front() -> None:
    content = as_json(wide_front())
    # A merge between two points is the last one, and chosen.
    content["points"].append(content["points"].pop(CHOSEN))
    front = from_json({**content, "selected": 11, "recommended": []})

    below = press(front, "down", size=(120, 40))
    above = press(front, "up", size=(120, 40))

    assert listed(below.screens[0]) == [0, 1, 2, 3, 11, 4, 5, 6, 7, 8, 9, 10]
    assert (above.view.at, below.view.at) == (3, 4)


def test_keys_that_are_pressed_while_a_choice_is_saved_do_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front, done = wide_front(), threading.Event()

    def save(_: Browser, __: Mapping[str, Any]) -> View:
        done.wait(60)
        return View.of(front)

    monkeypatch.setattr(Browser, "_saved", save)

    async def look() -> int:
        app = Browser(RunFolder(Path("run")), View.of(front), "run")
        async with app.run_test() as pilot:
            await pilot.press("s", "down", "down", "q")
            at = app.view.at
            done.set()
            await settled(app, pilot)
            return at

    assert run_apart(look()) == CHOSEN


def test_a_point_that_misses_a_limit_is_saved_when_asked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = []
    content = as_json(wide_front())
    limits = {"select": {"require": {TASKS[0]: 0.66}}}
    front = from_json({**content, **limits})  # which the first points miss

    def save(_: Browser, choice: Mapping[str, Any]) -> View:
        saved.append(choice)
        return View.of(front)

    monkeypatch.setattr(Browser, "_saved", save)
    keys = ("l", "escape", "up", "s", "escape", "s", "enter")
    seen = press(front, *keys)
    sorted_still = press(front, "down", "1", "s")

    limits, asked, refused = ("\n".join(seen.screens[i]) for i in (1, 4, 5))
    assert f" {TASKS[0]}=0.66 " in limits
    assert "Point 3 misses a limit. Choose it all the same?" in asked
    assert "misses a limit" in refused.splitlines()[0]
    assert saved == [{"index": 3}, {"index": 5}]
    assert sorted_still.view.sorted_by == TASKS[0]


def test_a_task_sorts_the_best_first_whatever_its_direction() -> None:
    # The first task rises along the points, as does the fourth, where lower is better.
    seen = press(wide_front(), "1", "4", "1", "0", size=(120, 40))

    points = list(range(12))
    orders = [listed(lines) for lines in seen.screens]
    assert orders == [points, points[::-1], points, points[::-1], points]
    assert seen.view.at == CHOSEN


def test_a_point_stands_beside_the_chosen_one() -> None:
    front = wide_front()
    seen = press(front, "down", "c", size=(90, 40))

    words = "weight point 5 point 4, chosen difference"
    assert seen.lines[0].split() == words.split()
    assert re.search(r"instruct-v2 +0.350 +0.300 +\+0.050", seen.text)
    assert re.search(r"~0.6623 ± 0.01 +0.6533 ± 0.01 +\+0.009 ± 0.021", seen.text)
    # Lower is better here, so that a larger value is a loss.
    assert re.search(r"~2.443 ± 0.02 +2.464 ± 0.02 +\+0.021 ± 0.040", seen.text)


def test_findings_are_those_of_the_point_that_is_shown() -> None:
    content = {**as_json(wide_front()), "reason": "Chosen before another."}

    seen = press(from_json(content), "down", "v", size=(90, 60))

    assert seen.lines[0].startswith("Point 5: ")
    assert not re.search("Chosen before|chosen merge", seen.text)


def test_other_merges_to_compare_with_are_turned_to() -> None:
    front = wide_front()
    n_others = 2 + len(MODELS)

    seen = press(front, "c", *["right"] * n_others, size=(120, 40))  # and around again

    for turns, label in ((1, "soup"), (n_others, "base")):
        (other,) = [a for a in front.anchors if a.label == label]
        shown = "\n".join(seen.screens[1 + turns])
        for model in MODELS:
            own, weight = front.chosen.coefficients[model], other.coefficients[model]
            assert re.search(rf"{model} +{own:.3f} +{weight:.3f} ", shown), label


def test_what_is_outside_of_the_screen_is_asked_for() -> None:
    merging = press(wide_front(), "up", "m", "enter").leaving
    elsewhere = press(wide_front(), "m", "text:there", "enter").leaving

    assert merging.view.asked == {"index": CHOSEN - 1}
    assert merging.out == f"my-search-{CHOSEN - 1}"
    assert elsewhere.out == "there"
    talking = press(wide_front(), "t").leaving
    assert (talking.view.asked, talking.out) == ({"index": CHOSEN}, None)


def test_the_help_names_every_key() -> None:
    seen = press(wide_front(), "question_mark", size=(99, 40))

    keys = {b.key_display or b.key for b in Browser.BINDINGS if isinstance(b, Binding)}
    shown = {line.split()[0] for line in seen.lines if line.strip()}
    assert keys - {f"{n}" for n in range(10)} <= shown
    assert "1-9" in shown
