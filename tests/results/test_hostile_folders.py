"""Run folders of strangers and damaged ones: data, never code and never a path."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest

from mergekit_map.cli import main
from mergekit_map.results.run_folder import RunFolder

DATA = Path(__file__).parents[1] / "data" / "run_v1"
SECRET = "merge_method: linear  # the secret of somebody else\n"
CHOICES = (["select", "run"], ["select", "run", "--prefer", "code=1"])
REPORT = ["report", "run"]


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work beside a copy of a run, and a file that is none of its business."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))
    Path("secret.txt").write_text(SECRET)
    Path("victim.txt").write_text("as it was")
    return shutil.copytree(DATA / "run", tmp_path / "run")


def invoke(*arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "\x1b" not in result.output
    return result


def sentences(result: click.testing.Result) -> list[str]:
    """List the lines that were said, but for what is being done."""
    return [line for line in result.output.splitlines() if not line.endswith(" ...")]


def changed(path: str, change: Callable[[Any], None]) -> None:
    content = json.loads(Path(path).read_text())
    change(content)
    Path(path).write_text(json.dumps(content))


def everything() -> str:
    """Read all that a stranger could get to see of the folder."""
    paths = (path for path in Path("run").rglob("*") if not path.is_symlink())
    return "".join(path.read_text(errors="replace") for path in paths if path.is_file())


@pytest.mark.parametrize("count", ["2", "9" * 60])
def test_the_log_of_a_shard_is_refused_with_what_to_do_instead(count: str) -> None:
    log = Path("run", f"evaluations.1-of-{count}.jsonl")
    log.write_bytes(b"")
    for command in (["select", "run"], REPORT, ["merge", "run", "out"]):
        result = invoke(*command)
        assert result.exit_code == 2
        assert f"{log} is the log of a shard" in result.output
        assert "--workers ray" in result.output


@pytest.mark.parametrize("command", [*CHOICES, REPORT])
@pytest.mark.parametrize("name", ["../../secret.txt", "../secret.txt", "/etc/hostname"])
def test_a_front_names_no_file(command: list[str], name: str) -> None:
    changed("run/front.json", lambda f: f["points"][6].update(recipe=name))

    result = invoke(*command)

    assert result.exit_code == 2
    assert "points.6: its recipe is recipes/006.yml" in result.output
    assert SECRET not in everything()


@pytest.mark.parametrize("command", [*CHOICES, REPORT])
@pytest.mark.parametrize(
    "place",
    [
        "recipes/006.yml",
        "recipe.yml",
        "front.csv",
        "front.png",
        "report.html",
        "evaluations.jsonl",
        "samples/x.json",
    ],
)
def test_no_link_is_read_or_written_through(place: str, command: list[str]) -> None:
    link = Path("run") / place
    link.unlink(missing_ok=True)
    link.symlink_to(
        Path("victim.txt" if "recipes" not in place else "secret.txt").resolve()
    )

    result = invoke(*command)

    assert result.exit_code == 2
    assert f"{place} is a symbolic link" in result.output
    assert Path("victim.txt").read_text() == "as it was"
    assert SECRET not in everything()


def test_a_link_in_the_place_of_a_folder_is_refused() -> None:
    shutil.rmtree("run/recipes")
    Path("elsewhere").mkdir()
    Path("run/recipes").symlink_to(Path("elsewhere").resolve())

    assert "recipes is a symbolic link" in invoke("select", "run").output
    assert not list(Path("elsewhere").iterdir())


def test_a_pipe_is_refused_and_not_waited_for() -> None:
    Path("run/front.json").unlink()
    os.mkfifo("run/front.json")

    assert "front.json is no ordinary file" in invoke("select", "run").output


@pytest.mark.parametrize("partial", [".recipe.yml.partial", ".front.json.partial"])
def test_names_that_were_used_on_the_way_are_not_written_to(partial: str) -> None:
    os.link("victim.txt", Path("run") / partial)  # no symbolic link, so not refused

    assert invoke("select", "run", "--index", "1").exit_code == 0
    assert Path("victim.txt").read_text() == "as it was"


@pytest.mark.parametrize(
    "text", ["\x1b]0;evil\x07", "a\nmerge_method: evil", "\u202egnp"]
)
@pytest.mark.parametrize("key", ["reason", "verdicts", "task", "unit", "label"])
def test_no_string_reaches_terminal_or_recipe_but_lines_of_text(
    text: str, key: str
) -> None:
    def put(front: dict[str, Any]) -> None:
        task = front["tasks"]["code"]
        match key:
            case "reason":
                front["reason"] = text
            case "verdicts":
                front["verdicts"] = [text]
            case "task":
                front["tasks"][text] = task
            case "unit":
                task["unit"] = text
            case "label":
                front["anchors"][0]["label"] = text

    changed("run/front.json", put)

    for command in (*CHOICES, REPORT):
        result = invoke(*command)
        assert result.exit_code == 2
        assert "a line of text is wanted" in result.output
        assert text not in result.output
    assert text not in Path("run/recipe.yml").read_text()


def test_escapes_in_a_recipe_are_not_shown() -> None:
    with Path("run/recipes/006.yml").open("a") as file:
        file.write("# \x1b[2J\n")

    result = invoke("select", "run")

    assert result.exit_code == 2
    assert "recipes/006.yml cannot be read: a line of text is wanted" in result.output


WRONG: list[Any] = [None, -1, 1e308, True, "x", "", [], {}, [[1]], 10**30]


def mutations(content: Any, rng: random.Random, count: int) -> Iterator[Any]:
    """Put something wrong in some place of what JSON holds, or leave the place out."""
    for _ in range(count):
        copy = json.loads(json.dumps(content))
        inner, key = copy, rng.choice(list(copy))
        while inner[key] and isinstance(inner[key], dict | list) and rng.random() < 0.8:
            inner = inner[key]
            key = rng.choice(
                list(inner if isinstance(inner, dict) else range(len(inner)))
            )
        if rng.random() < 0.2:
            del inner[key]
        else:
            inner[key] = rng.choice(WRONG)
        yield copy


@pytest.mark.slow
@pytest.mark.parametrize("name", ["front.json", "manifest.json", "surrogates.json"])
def test_a_damaged_file_is_one_sentence(name: str) -> None:
    path = Path("run") / name
    seen = set()
    for content in mutations(json.loads(path.read_text()), random.Random(0), 60):
        shutil.rmtree("run")
        shutil.copytree(DATA / "run", "run")
        path.write_text(json.dumps(content))
        for command in CHOICES[1], REPORT:
            result = invoke(*command)
            seen.add(result.exit_code)
            if result.exit_code:
                (sentence,) = sentences(result)
                assert sentence.startswith("error: ")
                assert path.name in sentence
    assert seen == {0, 2}


@pytest.mark.slow
def test_a_damaged_log_is_one_sentence_with_its_line() -> None:
    lines = Path("run/evaluations.jsonl").read_text().splitlines()
    for content in mutations(json.loads(lines[3]), random.Random(1), 40):
        changed_lines = [*lines[:3], json.dumps(content), *lines[4:]]
        Path("run/evaluations.jsonl").write_text("\n".join(changed_lines) + "\n")
        result = invoke(*REPORT)
        if result.exit_code:
            assert "evaluations.jsonl:4: not an evaluation" in result.output
            assert len(sentences(result)) == 1


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff\xfe", b"{", b"[]", b"null", b"[" * 100_000, b"\0", b'{"a": NaN}'],
)
@pytest.mark.parametrize("name", ["front.json", "surrogates.json", "manifest.json"])
def test_what_is_no_json_is_one_sentence(name: str, raw: bytes) -> None:
    (Path("run") / name).write_bytes(raw)

    result = invoke(*REPORT)

    assert result.exit_code == 2
    assert name in result.output
    assert len(sentences(result)) == 1


def test_the_names_of_files_are_derived() -> None:
    assert RunFolder(Path("run")).recipe(7) == Path("run/recipes/007.yml")
    assert RunFolder(Path("run")).pair(2).path == Path("run/nested/pair-2")


END = {"coefficient": "nobody", "end": 1.0}
STOP = {"evaluations": 1, "allowed": 1, "trusted": False, "error": 0.1, "hope": 0.1}


@pytest.mark.parametrize("command", [*CHOICES, REPORT])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("border", [{**END, "points": 1, "beyond": 2.0, "gain": 0.1}]),
        ("ending", {**STOP, "task": "nobody"}),
        ("groups", {"one": {"nobody": 1.0}}),
        ("order", "nobody"),
        ("order", ["twice", ["twice", "once"]]),
    ],
)
def test_what_a_front_names_is_there(command: list[str], key: str, value: Any) -> None:
    changed("run/front.json", lambda front: front.update({key: value}))

    result = invoke(*command)

    assert result.exit_code == 2
    assert "front.json" in result.output
    assert key in result.output


@pytest.mark.parametrize("command", [CHOICES[1], REPORT])
def test_surrogates_are_functions_of_what_their_front_names(command: list[str]) -> None:
    def turned(content: Any) -> None:
        content["coefficients"] = content["coefficients"][::-1]

    changed("run/surrogates.json", turned)

    result = invoke(*command)

    assert result.exit_code == 2
    assert "surrogates.json has other coefficients than its front" in result.output
