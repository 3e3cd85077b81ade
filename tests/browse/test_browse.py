"""browse on a finished search: what it reads, writes, merges and says."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from contextlib import ExitStack
from pathlib import Path

import pyte
import pytest
import torch
import yaml
from mergekit.options import MergeOptions
from nested_runs import files_of, invoke
from screens import press
from transformers import AutoModelForCausalLM

from mergekit_map.browse.app import ExitAction
from mergekit_map.browse.state import View
from mergekit_map.cli.commands.browse import _Outside
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.workflows.chat import open_chat


@pytest.fixture
def run(at_home: str) -> Path:
    """A run folder of version 1, whose models trade off, with what it needs."""
    assert at_home
    return Path("run")


def view_of(run: Path) -> View:
    return View.of(RunFolder(run).read_front())


def outside_of(run: Path, stack: ExitStack) -> _Outside:
    return _Outside(
        RunFolder(run), lambda _: MergeOptions(quiet=True), stack, trust_run=False
    )


def test_a_wish_goes_where_select_does_and_saving_writes_what_it_writes(
    run: Path, tmp_path: Path
) -> None:
    answer = "greeting=3,code=1"
    other = shutil.copytree(run, tmp_path / "other")
    invoke("select", other, "--prefer", answer)
    before = files_of(run)
    keys = ["l", "tab", f"text:{answer}", "enter"]  # past the limits
    press(view_of(run), *keys, run=run)
    assert files_of(run) == before

    seen = press(view_of(run), *keys, "s", run=run)

    front = RunFolder(other).read_front()
    assert seen.view.point.coefficients == front.chosen.coefficients
    recipes = [yaml.safe_load((r / "recipe.yml").read_text()) for r in (run, other)]
    assert recipes[0] == recipes[1]
    assert RunFolder(run).read_front().points == front.points


def test_a_wish_that_cannot_be_says_why(run: Path) -> None:
    seen = press(view_of(run), "l", "text:greeting=0.0001", "enter", run=run)

    assert "relax a limit" in " ".join(seen.text.replace("│", " ").split())
    assert "greeting=0.0001" in seen.text  # to be mended
    assert seen.view.at == view_of(run).at


@pytest.mark.parametrize("how", ["memory", "disk"])
def test_what_one_talks_with_is_the_merge_of_the_recipe(
    run: Path, tmp_path: Path, how: str
) -> None:
    if how == "disk":
        text = (run / "config.yml").read_text().replace("map:", "map:\n  merge: disk")
        (run / "config.yml").write_text(text)
    points, last = view_of(run).front.points, {}
    with open_chat(run, MergeOptions(quiet=True), trust_run=True) as merges:
        for point in (points[0], points[-1]):
            spoken = merges(point.coefficients).model.state_dict()
            last = {name: value.clone() for name, value in spoken.items()}

    recipe = yaml.safe_load(RunFolder(run).recipe(len(points) - 1).read_text())
    write_checkpoint(recipe, tmp_path / "stock", MergeOptions(quiet=True))
    stock = AutoModelForCausalLM.from_pretrained(tmp_path / "stock").state_dict()
    assert stock.keys() == last.keys()
    assert all(torch.equal(stock[name], last[name]) for name in stock)


def test_one_talks_until_a_line_is_empty(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = io.StringIO(f"hello\n{'world ' * 200}\n\nnot read\n")
    monkeypatch.setattr(sys, "stdin", lines)
    view = view_of(run).moved(0)
    with ExitStack() as stack:
        after = outside_of(run, stack).do(ExitAction(view))

    assert after is view
    assert lines.read() == "not read\n"
    output = capsys.readouterr()
    assert f"point 0: {view.point.weights}" in output.out
    assert "without a chat template" in output.out
    assert "tokens, and the model has 64 positions" in output.err


def test_merging_comes_back_measured(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n"))
    at = 3  # not measured
    view = view_of(run).moved(at)
    with ExitStack() as stack:
        action = ExitAction(view, str(tmp_path / "out"))
        after = outside_of(run, stack).do(action)

    assert after.at == after.front.selected == at
    assert after.point.is_measured("greeting", "code")
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.slow  # imports all in a process of its own
def test_the_command_in_a_terminal_walks_refuses_and_ends(run: Path) -> None:
    main_end, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    screen = pyte.Screen(60, 24)
    stream = pyte.ByteStream(screen)
    command = [sys.executable, "-W", "ignore", "-m", "mergekit_map", "browse"]
    cache = {"HF_HUB_CACHE": str(Path("hub").resolve()), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*command, str(run)],
        stdin=end,
        stdout=end,
        stderr=end,
        env={**os.environ, **cache},
        start_new_session=True,
    )
    os.close(end)

    def until(words: str) -> None:
        started = time.monotonic()
        while not any(words in line for line in screen.display):
            assert time.monotonic() - started < 100, screen.display
            if select.select([main_end], [], [], 0.2)[0]:
                stream.feed(os.read(main_end, 65536))

    try:
        until("point 6 of 10, chosen")
        os.write(main_end, b"\x1b[B")
        until("point 7 of 10")
        os.write(main_end, b"m")
        until("folder for the merge")
        os.write(main_end, b"texts\r")  # which is there already
        until("error: texts exists already")
        until("enter goes back to the front")
        os.write(main_end, b"\r")
        until("point 7 of 10")
        os.write(main_end, b"q")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main_end)
