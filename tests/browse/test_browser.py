"""browse by its keys: what it shows at any width, and what is written."""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fronts import CODE, MATH, NOT_MEASURED, as_json, from_json, make_front
from mergekit.options import MergeOptions
from runs import change_json, invoke
from textual.binding import Binding
from textual.pilot import Pilot
from transformers import AutoModelForCausalLM

from mergekit_map.browse.app import WORKING, Browser, ExitAction
from mergekit_map.browse.view import View
from mergekit_map.cli.commands.select import _MergeAndChat
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.workflows.chat import open_chat


@dataclass(frozen=True)
class Seen:
    """What was on the screen after some keys, and what was asked for in the end."""

    screens: list[list[str]]  # at first, and after each key
    view: View
    leaving: ExitAction | None

    @property
    def lines(self) -> list[str]:
        return self.screens[-1]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


async def settled(app: Browser, pilot: Pilot[ExitAction]) -> list[str]:
    """Wait until the screen stays as it is, and read it."""
    seen: list[list[str]] = []
    while len(seen) < 3 or seen[-1] != seen[-2] or seen[-1][:1] in ([""], [WORKING]):
        await pilot.pause(0.02)
        if not app.is_running:
            return []
        strips = app.screen._compositor.render_strips()
        seen.append(["".join(part.text for part in row).rstrip() for row in strips])
    return seen[-1]


def press(
    front: Front | View,
    *keys: str,
    size: tuple[int, int] = (80, 30),
    run: Path = Path("my-search"),
) -> Seen:
    """Open the screen, press keys, and look."""
    view = front if isinstance(front, View) else View.of(front)

    async def look() -> Seen:
        app = Browser(RunFolder(run), view)
        async with app.run_test(size=size) as pilot:
            screens = [await settled(app, pilot)]
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
                screens.append(await settled(app, pilot) if app.is_running else [])
            return Seen(screens, app.view, app.return_value)

    return run_apart(look())


def run_apart(look: Coroutine[Any, Any, Any]) -> Any:
    """Run in a loop of its own: Playwright has one in the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, look).result()


# Four models and four tasks with long names, which are wide to show.
MODELS = ["mistral-french-instruct-v2", "german-reading-7b", "code-llama-python-ft"]
MODELS += ["math-shepherd-merged"]
TASKS = ["french_reading_comprehension_choice", "german_reading_loss"]
TASKS += ["python_completion_pass_at_1", "gsm8k_flexible_extract"]
CHOSEN = 4


def wide_front() -> Front:
    """Every fourth point is measured; all numbers of a point tell it from others."""
    predicted = [
        [(0.41234 + t / 10 + i / 100, 0.0123) for t in range(4)] for i in range(12)
    ]
    points = [
        (row, NOT_MEASURED * 2 if i % 4 else [(value + 0.001, e) for value, e in row])
        for i, row in enumerate(predicted)
    ]
    anchors = {label: [(0.3, 0.01)] * 4 for label in ("base", *MODELS, "soup")}
    tasks = dict(zip(TASKS, [MATH, CODE] * 2, strict=True))
    return make_front(points, anchors, tasks=tasks, selected=CHOSEN, recommended=[4, 8])


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

    assert listed(below.screens[0]) == [0, 1, 2, 3, 11, 4, 5, 6, 7, 8, 9, 10]
    assert (press(front, "up", size=(120, 40)).view.at, below.view.at) == (3, 4)


def test_keys_that_are_pressed_while_a_choice_is_saved_do_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front, done = wide_front(), threading.Event()

    def save(_: Browser, __: int) -> View:
        done.wait(60)
        return View.of(front)

    monkeypatch.setattr(Browser, "_save_choice", save)

    async def look() -> int:
        app = Browser(RunFolder(Path("run")), View.of(front))
        async with app.run_test() as pilot:
            await pilot.press("s", "down", "down", "q")
            at = app.view.at
            done.set()
            await settled(app, pilot)
            return at

    assert run_apart(look()) == CHOSEN


def test_a_task_sorts_the_best_first_whatever_its_direction() -> None:
    # The first task rises along the points, as does the fourth, where lower is better.
    seen = press(wide_front(), "1", "4", "1", "0", size=(120, 40))

    points = list(range(12))
    orders = [listed(lines) for lines in seen.screens]
    assert orders == [points, points[::-1], points, points[::-1], points]
    assert seen.view.at == CHOSEN


def test_findings_are_those_of_the_point_that_is_shown() -> None:
    content = {**as_json(wide_front()), "reason": "Chosen before another."}

    seen = press(from_json(content), "down", "v", size=(90, 60))

    assert seen.lines[0].startswith("Point 5: ")
    assert not re.search("Chosen before|chosen merge", seen.text)


def test_what_is_outside_of_the_screen_is_asked_for() -> None:
    for key, kind in (("m", "merge"), ("t", "chat")):
        leaving = press(wide_front(), "up", key).leaving
        assert (leaving.view.at, leaving.kind) == (CHOSEN - 1, kind)


def test_the_help_names_every_key() -> None:
    seen = press(wide_front(), "question_mark", size=(99, 40))

    keys = {b.key_display or b.key for b in Browser.BINDINGS if isinstance(b, Binding)}
    shown = {line.split()[0] for line in seen.lines if line.strip()}
    assert keys - {f"{n}" for n in range(10)} | {"1-9"} <= shown


@pytest.fixture
def run(at_home: str) -> Path:
    """A run folder of version 1, whose models trade off, with what it needs."""
    return at_home


def view_of(run: Path) -> View:
    return View.of(RunFolder(run).read_front())


def actions_on(run: Path, stack: ExitStack) -> _MergeAndChat:
    return _MergeAndChat(RunFolder(run), lambda _: MergeOptions(quiet=True), stack, {})


def test_saving_a_point_writes_what_select_writes_or_says_why_not(run: Path) -> None:
    other = shutil.copytree(run, Path("other"))
    invoke("select", other, "--index", "5")

    seen = press(replace(view_of(run), at=4), "down", "1", "s", run=run)

    assert seen.view.front == RunFolder(other).read_front()
    assert (seen.view.at, seen.view.sorted_by) == (5, "greeting")
    recipes = [yaml.safe_load((r / "recipe.yml").read_text()) for r in (run, other)]
    assert recipes[0] == recipes[1]
    # What is on the screen is no point of the front that another search has written.
    stale, new = replace(view_of(run), at=4), {"greeting": {"value": 9, "stderr": None}}
    change_json(run / "front.json", lambda f: f["points"][4]["predicted"].update(new))
    assert "has another front since" in press(stale, "s", run=run).text
    (run / "front.json").unlink()  # so that nothing can be saved
    assert "front.json" in press(seen.view, "s", run=run).text


@pytest.mark.parametrize("how", ["memory", "disk"])
def test_what_one_talks_with_is_the_merge_of_the_recipe(run: Path, how: str) -> None:
    if how == "disk":
        text = (run / "config.yml").read_text().replace("map:", "map:\n  merge: disk")
        (run / "config.yml").write_text(text)
    points, last = view_of(run).front.points, {}
    with open_chat(run, MergeOptions(quiet=True), trust_run=True) as merges:
        for point in (points[0], points[-1]):
            spoken = merges(point.coefficients).model.state_dict()
            last = {name: value.clone() for name, value in spoken.items()}

    recipe = yaml.safe_load(RunFolder(run).recipe(len(points) - 1).read_text())
    write_checkpoint(recipe, Path("stock"), MergeOptions(quiet=True))
    stock = AutoModelForCausalLM.from_pretrained("stock").state_dict()
    assert stock.keys() == last.keys()
    assert all(torch.equal(stock[name], last[name]) for name in stock)


def test_one_talks_until_a_line_is_empty(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = io.StringIO(f"hello\n{'world ' * 200}\n\nnot read\n")
    monkeypatch.setattr(sys, "stdin", lines)
    view = replace(view_of(run), at=0)
    with ExitStack() as stack:
        after = actions_on(run, stack).perform(ExitAction(view, "chat"))

    assert after is view
    assert lines.read() == "not read\n"
    output = capsys.readouterr()
    assert f"point 0: {view.point.weights}" in output.out
    assert "without a chat template" in output.out
    assert "tokens, and the model has 64 positions" in output.err


def test_merging_comes_back_measured(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("out\n\n"))
    at = 3  # not measured
    view = replace(view_of(run), at=at)
    with ExitStack() as stack:
        after = actions_on(run, stack).perform(ExitAction(view, "merge"))

    assert after.at == after.front.selected == at
    assert after.point.is_measured("greeting", "code")
    assert Path("out", "model.safetensors").exists()


def test_the_command_goes_between_the_screen_and_what_is_outside_of_it(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[View] = []

    def leave(app: Browser) -> ExitAction | None:
        seen.append(app.view)
        # Into a folder which is there already; then back, and to the end.
        return ExitAction(replace(app.view, at=7), "merge") if len(seen) == 1 else None

    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(Browser, "run", leave)

    said = invoke("browse", run, typed="texts\n\n").output

    assert [view.at for view in seen] == [6, 7]
    assert "error: texts exists already" in said
    assert "enter goes back to the front" in said
    monkeypatch.setattr(os, "isatty", lambda _: False)
    assert "browse wants a terminal" in invoke("browse", run, code=2).output
