"""Searches that share a run folder: each measures its share, a plain one joins them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
from nested_runs import invoke, write

from mergekit_map.cli import main
from mergekit_map.results.shard_logs import Shard, locked

_MODULE = """
import os
from pathlib import Path

def asked(model, task, documents):
    with open("asked.txt", "a") as file:
        file.write(f"{task} {model.lm_head.weight.double().sum().item()!r}\\n")
    return (model.lm_head.weight.float() * (1 if task == "one" else -2)).std().item()

def one(model, tokenizer):
    return asked(model, "one", None) + model.lm_head.weight.float().mean().item()

def two(model, tokenizer):
    return asked(model, "two", None)
"""
_FILES = ("front.json", "front.csv", "surrogates.json")


@pytest.fixture
def config(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(_MODULE)
    tasks = {
        n: {"python": f"mine:{n}", "direction": "minimize"} for n in ("one", "two")
    }
    config = {
        "merge_method": "task_arithmetic",
        "base_model": str(family["base"]),
        "models": [{"model": str(family[name])} for name in "ab"],
        "dtype": "float32",
        "map": {"tasks": tasks, "search": {"evaluations": 8, "remeasure": 1}},
    }
    write(config)
    return config


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergekit_map.results.company._SILENCE", 0.0)


def lines(path: str) -> list[dict[str, Any]]:
    """Read a log without its timings."""
    found = [json.loads(text) for text in Path(path).read_text().splitlines()]
    for line in found:
        del line["seconds"]
    return found


def asked() -> list[str]:
    return Path("asked.txt").read_text().splitlines()


def shard(which: str, *options: str) -> str:
    return invoke("search", "config.yml", "run", "--shard", which, *options).output


def refused(which: str) -> str:
    command = ["search", "config.yml", "run", "--shard", which]
    result = click.testing.CliRunner().invoke(main, command)
    assert result.exit_code == 2
    return result.output


def is_as_one_process(*, measured: int) -> None:
    """Hold the folder ``run`` against a search in one process."""
    assert len(asked()) == len(set(asked())) == measured
    Path("asked.txt").unlink()
    invoke("search", "config.yml", "whole")
    assert len(asked()) == measured
    for name in _FILES:
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()
    assert lines("run/evaluations.jsonl") == lines("whole/evaluations.jsonl")
    recipe = Path("run/recipe.yml").read_text().replace("run/", "whole/")
    assert recipe == Path("whole/recipe.yml").read_text()


@pytest.mark.usefixtures("config", "impatient")
def test_shards_measure_the_design_and_a_plain_search_goes_on_from_there() -> None:
    first = shard("1/2")

    assert "shard 1/2: 6 measurements made, in run/evaluations.1-of-2.jsonl" in first
    assert "what shard 2/2 is to measure, which did not run beside it" in first
    assert "mergekit-map search config.yml run\n" in first
    assert not Path("run/evaluations.jsonl").exists()
    assert not Path("run/evaluations.1-of-2.jsonl.alive").exists()
    second = shard("2/2", "--json")
    answer = json.loads(second[second.index("{") :])
    # The design, and the share of the merge that the refinement asks for next.
    assert (answer["measured"], answer["missing"]) == (7, ["1/2"])
    assert "7" in second

    joined = invoke("search", "config.yml", "run").output

    assert "measured in shards: 6 of shard 1/2 and 7 of shard 2/2\n" in joined
    count = len(lines("run/evaluations.jsonl"))
    is_as_one_process(measured=count)


@pytest.mark.usefixtures("config", "impatient")
def test_what_was_measured_by_a_shard_is_not_measured_again_by_it() -> None:
    shard("1/2")
    before = asked()

    again = shard("1/2")

    assert "shard 1/2: 0 measurements made" in again
    assert asked() == before


@pytest.mark.usefixtures("config", "impatient")
def test_a_torn_line_is_dropped_and_lost_shards_are_measured_by_others() -> None:
    shard("2/3")
    log = Path("run/evaluations.2-of-3.jsonl")
    content = log.read_bytes()
    log.write_bytes(content + content[:40])
    shard("1/2")

    joined = invoke("search", "config.yml", "run").output

    assert "there is no log of shard 1/3 and 3/3" in joined
    # What both were to measure was measured once.
    is_as_one_process(measured=len(lines("run/evaluations.jsonl")))


@pytest.mark.usefixtures("impatient")
def test_shards_of_another_configuration_are_named_and_not_used(
    config: dict[str, Any],
) -> None:
    shard("1/2")
    n_before = len(asked())
    config["dtype"] = "bfloat16"
    write(config)

    joined = invoke("search", "config.yml", "run").output

    assert "0 of shard 1/2; there is no log of shard 2/2; 6 more are kept but" in joined
    Path("asked.txt").write_text("\n".join(asked()[n_before:]) + "\n")
    is_as_one_process(measured=len(lines("run/evaluations.jsonl")))


@pytest.mark.usefixtures("config", "impatient")
def test_a_part_of_the_documents_is_shared_too(config: dict[str, Any]) -> None:
    Path("one.txt").write_text("hello world, one plus two\n" * 100)
    Path("two.txt").write_text("def return three\n" * 100)
    config["map"]["tasks"] = {
        name: {
            "perplexity": {"file": f"{name}.txt"},
            "block": 16,
            "documents": 12,
        }
        for name in ("one", "two")
    }
    write(config)
    shard("1/2")
    shard("2/2")
    shard("1/2")

    invoke("search", "config.yml", "run")
    invoke("search", "config.yml", "whole")

    parts = [line for line in lines("run/evaluations.jsonl") if "documents" in line]
    assert parts
    shared = [
        line
        for number in (1, 2)
        for line in lines(f"run/evaluations.{number}-of-2.jsonl")
        if "documents" in line
    ]
    assert shared
    assert all(line in parts for line in shared)
    assert lines("run/evaluations.jsonl") == lines("whole/evaluations.jsonl")
    for name in _FILES:
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("3/2", "--shard: there is no shard 3/2: those of 2 are 1/2 to 2/2"),
        ("0/2", "--shard: there is no shard 0/2: those of 2 are 1/2 to 2/2"),
        ("1/0", "--shard: there is no shard 1/0: the first is 1/1"),
        (
            "2",
            "--shard is written as I/N, for example 2/8, the second of eight; got '2'",
        ),
    ],
)
def test_shards_that_do_not_exist_are_refused(given: str, said: str) -> None:
    assert said in refused(given)
    assert not Path("run").exists()


@pytest.mark.usefixtures("config", "impatient")
def test_a_shard_runs_once_at_a_time_and_no_search_beside_it() -> None:
    shard("1/2")
    with locked(Path("run"), Shard(1, 2)):
        assert "shard 1/2 of run runs already; wait for it" in refused("1/2")
        result = click.testing.CliRunner().invoke(main, ["search", "config.yml", "run"])

    assert result.exit_code == 2
    assert "shard 1/2 of run is measuring; wait for it, or stop it" in result.output
    assert not Path("run/evaluations.jsonl").exists()


@pytest.mark.usefixtures("impatient")
def test_a_nested_search_of_checkpoints_cannot_be_shared(
    config: dict[str, Any], family: dict[str, Path]
) -> None:
    config["merge_method"] = "ties"
    config["models"].append({"model": str(family["c"])})
    config["map"]["search"] = {"strategy": "nested"}
    write(config)

    assert "search without --shard" in refused("1/2")


def test_the_only_shard_measures_everything(
    config: dict[str, Any], make_model: Callable[..., Path]
) -> None:
    del make_model, config
    told = shard("1/1")

    assert "All that the search asks for is measured. Find the front:" in told
    before = len(asked())
    invoke("search", "config.yml", "run")
    is_as_one_process(measured=before)
