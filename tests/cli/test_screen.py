"""The answer on the terminal, short and whole at every width, and what TAB offers."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import click
import pytest
from fronts import CODE, MATH, Row, make_front, write_folder

from mergekit_map.cli.main import main
from mergekit_map.cli.screen import next_steps, show_answer, show_steps
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front
from mergekit_map.results.selection import MERGE
from mergekit_map.types import SOUP

LONG = ["french_reading_comprehension_choice", "gsm8k_cot_zeroshot_flexible_extract"]
LONG += ["de", "humaneval_instruct_pass_at_1"]
PARENT = "Meta-Llama-3-8B-french-instruct-v2"


def front_of(n_tasks: int, *, measured: bool = True) -> Front:
    def row(better: float) -> Row:
        scores = [(0.6 + better * i / 40, i / 100) for i in range(1, 5)]
        losses = [(2.5 - better * i / 10, 0.02) for i in range(1, 5)]
        return [(scores if i % 2 else losses)[i] for i in range(n_tasks)]

    anchors = {"base": row(0), PARENT: row(1.5), "other": row(-1), "soup": row(0.5)}
    known = row(1) if measured else [(None, None)] * n_tasks
    tasks = {name: MATH if i % 2 else CODE for i, name in enumerate(LONG[:n_tasks])}
    return make_front([(row(1), known)], anchors, tasks=tasks)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("n_tasks", "most"), [(1, 40), (2, 40), (4, 60)])
@pytest.mark.parametrize("measured", [True, False])
def test_an_answer_is_one_screen_with_every_number_and_more_shows_details(
    n_tasks: int,
    most: int,
    width: int,
    measured: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    front = front_of(n_tasks, measured=measured)

    found = show_answer(front)
    show_steps(Path("run"), found)

    output = capsys.readouterr().out
    lines = output.splitlines()
    assert len(lines) <= most
    assert max(map(len, lines)) <= width
    assert "…" not in output
    assert "".join(found.headline.split()) in "".join(output.split())
    gains = re.findall(r"\d\.\d+ ± \d\.\d+", output)
    assert len(gains) >= 3 * n_tasks  # base, soup and best parent
    assert found.details
    show_answer(front, verbose=True)
    more = "".join(capsys.readouterr().out.split())
    assert all("".join(detail.split()) in more for detail in found.details)


def test_commands_to_type_next_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = Path("my run").resolve(), Path("it's mine").resolve()
    run.mkdir()
    out.mkdir()
    found = replace(answer(front_of(2)), advice=MERGE)
    wider = replace(found, wider_bounds="a b=-0.2:1.2,lr=1e-5,wd=0.1=0:2")
    write_folder(run, front_of(2))
    (run / "config.yml").touch()
    monkeypatch.chdir(run)

    steps = [*next_steps(run, found), *next_steps(run, wider, out)]

    assert len(steps) == 6
    for _, line in steps:
        program, name, *words = shlex.split(line)
        command = main.get_command(click.Context(main), name)
        assert (program, command is None) == ("mergekit-map", False)
        params = command.make_context(name, words).params
        assert [value for value in params.values() if value in (run, out, (run,))]


def test_a_soup_that_no_merge_beats_is_what_comes_next(tmp_path: Path) -> None:
    found = replace(answer(front_of(2)), advice=SOUP)
    steps = next_steps(tmp_path, found)
    assert [purpose for purpose, _ in steps] == ["see the front", "choose another"]
    recipe = tmp_path / "recipes" / "soup.yml"
    recipe.parent.mkdir()
    recipe.touch()

    first, *_ = next_steps(tmp_path, found)

    assert first == ("merge the soup", f"as the first lines of {recipe} say")
    assert next_steps(tmp_path, found, Path("out"))[0] == first
