"""Merges from options alone: the file they stand for, and all that follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import invoke

from mergekit_map.workflows.init import map_block


@pytest.fixture
def options(family: dict[str, Path]) -> list[str]:
    """Options of a merge that works, and the texts that they name."""
    Path("fr.txt").write_text("hello world, one plus two\n" * 30)
    Path("de.jsonl").write_text('{"id": 1, "body": "def return x"}\n' * 30)
    models = ["--base", str(family["base"])]
    models += ["--model", str(family["a"]), "--model", str(family["b"])]
    return [*models, "--text", "fr.txt", "--text", "german=de.jsonl"]


def asked(*arguments: str) -> dict[str, Any]:
    """Give the configuration that options are written as."""
    invoke("init", "asked.yml", *arguments)
    content: dict[str, Any] = yaml.safe_load(Path("asked.yml").read_text())
    Path("asked.yml").unlink()
    return content


def test_options_stand_for_a_configuration(
    options: list[str], family: dict[str, Path]
) -> None:
    assert asked(*options, "--task", "gsm8k", "--task", "q.yaml:acc,none") == {
        "merge_method": "task_arithmetic",
        "base_model": str(family["base"]),
        "models": [{"model": str(family[name])} for name in "ab"],
        "dtype": "float32",  # that of the base
        "map": {
            "tasks": {
                "fr": {"perplexity": "fr.txt"},
                "german": {"perplexity": "de.jsonl"},
                "gsm8k": {"preset": "gsm8k"},
                "q": {"lm_eval": "q.yaml", "metric": "acc", "filter": "none"},
            },
            "select": {"not_worse_than": "base"},
        },
    }


def test_a_base_of_the_hub_is_merged_as_bfloat16() -> None:
    content = asked("--base", "org/base", "--model", "org/a", "--method", "ties")

    assert content["dtype"] == "bfloat16"
    assert content["parameters"] == {"density": 0.5}
    content = asked("--base", "org/base", "--model", "org/a", "--method", "breadcrumbs")
    assert content["parameters"] == {"density": 0.9}
    assert content["map"]["tasks"] == {"a": {"perplexity": "a.txt"}}  # to be filled in
    limits = {"require": {"fr": "95%"}}  # of the command line are the only ones
    block = map_block(["a"], {"fr": {}}, {"select": limits}, on_base=True)
    assert block["select"] == limits


def test_options_of_search_and_choice_complete_and_override_a_configuration(
    options: list[str],
) -> None:
    more = ["--evaluations", "6", "--hours", "0.5", "--prefer", "fr=2,german=1"]
    more += ["--method", "ties", "--density", "0.7"]
    invoke("search", *options, *more, "s")
    log = Path("s/evaluations.jsonl").read_text()
    assert Path("s/config.yml").read_text() == Path("s.yml").read_text()
    for again in ([*options, *more], ["s.yml"]):  # with and without the file
        invoke("search", *again, "s")
        assert Path("s/evaluations.jsonl").read_text() == log
    written = yaml.safe_load(Path("s.yml").read_text())
    assert written["parameters"] == {"density": 0.7}
    block = written["map"]
    assert block["search"] == {"evaluations": 6, "hours": 0.5}
    preferred = {"prefer": {"fr": 2, "german": 1}}
    assert block["select"] == {"not_worse_than": "base", **preferred}

    limits = ["--require", "fr=5.7", "--require", "german=9"]
    invoke("search", "s.yml", "s", "--evaluations", "7", *limits)

    found = yaml.safe_load(Path("s/config.yml").read_text())
    assert found["map"]["search"] == {"evaluations": 7, "hours": 0.5}
    required = {"require": {"fr": 5.7, "german": 9}}
    assert found["map"]["select"] == {**block["select"], **required}
    assert yaml.safe_load(Path("s.yml").read_text()) == written  # is the user's


def test_a_file_that_was_edited_is_left_as_it_is(options: list[str]) -> None:
    failed = invoke("search", *options, "--dtype", "", "s", code=2).stderr
    assert "s.yml:" in failed
    assert ": dtype: there is no dtype ''" in failed
    mending = ["--dtype", "float32", "--device", "meta"]
    mended = invoke("search", *options, *mending, "s", code=2).stderr
    assert "--device meta asks for a device" in mended
    assert "dtype: float32" in Path("s.yml").read_text()
    edited = "# mine\n"
    Path("s.yml").write_text(edited)

    result = invoke("search", *options, "s", code=2)

    assert "is left as it is" in result.stderr
    assert "name it in their place, or remove it" in result.stderr
    assert Path("s.yml").read_text() == edited


@pytest.mark.usefixtures("options")
def test_mistakes_in_method_base_and_text_are_told_at_once() -> None:
    for name in ("one", "two"):
        Path(name).mkdir()
    wrong = ["--base", "bse", "--text", "mth", "--method", "dare_liner"]

    result = invoke("run", *wrong, "--model", "one", "--model", "two", "out", code=2)

    said = " ".join(result.stderr.split())
    assert "; did you mean 'dare_linear' or 'dare_ties'" in said
    for place in ("base_model: there is no folder 'bse'", "mth.perplexity: file must"):
        assert place in said


USAGE = {
    "select run-\udcff": "is not printable; rename the file",
    "select run-\x1b[2J": "is not printable; rename the file",
    "run out": "--base, --text, --task); got only OUT",
    "inspect": "got neither",
    "inspect --model b --text fr.txt": "options: 'task_arithmetic' merges",
    "search fr.txt b --base c": "got fr.txt, --base",
    "run --base a --text fr.txt out": "Missing option '--model'",
    "run --base a --model b out": "Missing option '--text' or '--task'",
    "run --model b --text fr.txt out": "add 'base_model:'",
    "run --base a --model b --text fr.txt --density 0.3 out": "drops no weights",
    "run fr.txt out --run-folder out/run": "must not be OUT, nor lie inside it",
    "init": "[PLAIN] CONFIG was expected",
    "init --base a --model a --model b --text fr.txt c.yml": "--model a is the base",
    "init --base a --model b --text fr.txt --text fr=fr.txt c.yml": "fr is given twice",
    "init plain.yml new.yml --base a": "--base: plain.yml says this already",
    "init fr.txt --base a --model b": "fr.txt exists already and is left as it is",
}


@pytest.mark.usefixtures("options")
@pytest.mark.parametrize("words", USAGE)
def test_what_is_missing_is_told(words: str) -> None:
    assert USAGE[words] in " ".join(invoke(*words.split(), code=2).output.split())
