"""Nested MAP on tiny models: what it ships is what it measured, and what stock does."""

from __future__ import annotations

import copy
import functools
import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest
import torch
import yaml
from mergekit.io.tasks import LoaderCache
from mergekit.scripts import multimerge, run_yaml
from safetensors.torch import load_file

from mergekit_map.cli import main
from mergekit_map.evaluating import MergeEvaluator
from mergekit_map.search.front import compute_front

NAMES = "abcd"
TASKS = ("like_a", "like_b", "like_cd")

TASK_MODULE = """
import torch

targets = torch.load("targets.pt", weights_only=True)

def away(model, task):
    return ((model.lm_head.weight.float() - targets[task]) ** 2).mean().item()

def like_a(model, tokenizer):
    return away(model, "like_a")

def like_b(model, tokenizer):
    return away(model, "like_b")

def like_cd(model, tokenizer):
    return away(model, "like_cd")
"""


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """Find fronts of few points, which takes less long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mergekit_map.search.front.N_GENERATIONS", 5)
        few = functools.partial(compute_front, n_points=10)
        patch.setattr("mergekit_map.study.fitting.compute_front", few)
        yield


@pytest.fixture(scope="module")
def models(family: dict[str, Path], make_model: Callable[..., Path]) -> dict[str, Path]:
    return {**family, "d": make_model("d", 4, family["base"])}


@pytest.fixture(scope="module")
def task_arithmetic(models: dict[str, Path], quick: None) -> dict[str, Any]:  # noqa: ARG001
    """Four models, three tasks: how far the output layer is from what it should be."""
    return {
        "merge_method": "task_arithmetic",
        "base_model": str(models["base"]),
        "models": [{"model": str(models[n])} for n in NAMES],
        "dtype": "float32",
        "map": {
            "tasks": {
                t: {"python": f"mine:{t}", "direction": "minimize"} for t in TASKS
            },
            "search": {
                "strategy": "nested",
                "order": [["a", "b"], ["c", "d"]],
                "evaluations": 7,
                "remeasure": 2,
            },
        },
    }


@pytest.fixture(scope="module")
def dare_ties(task_arithmetic: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(task_arithmetic)
    config["merge_method"] = "dare_ties"
    for model in config["models"]:
        model["parameters"] = {"density": 0.7}
    return config


@pytest.fixture(scope="module")
def linear_run(
    models: dict[str, Path],
    task_arithmetic: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with a finished search, ``out.run``, and what it merged, ``out``."""
    return finished(tmp_path_factory.mktemp("linear"), models, task_arithmetic)


@pytest.fixture(scope="module")
def ties_run(
    models: dict[str, Path],
    dare_ties: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The same with a method that elects signs."""
    return finished(tmp_path_factory.mktemp("ties"), models, dare_ties)


def finished(folder: Path, models: dict[str, Path], config: dict[str, Any]) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_tasks(models)
        write(config)
        invoke("run", "config.yml", "out")
    return folder


def write_tasks(models: dict[str, Path]) -> None:
    heads = {
        n: load_file(path / "model.safetensors")["lm_head.weight"]
        for n, path in models.items()
    }
    base = heads["base"]
    both = base + 0.8 * (heads["c"] - base) + 0.6 * (heads["d"] - base)
    targets = {"like_a": heads["a"], "like_b": heads["b"], "like_cd": both}
    torch.save(targets, "targets.pt")
    Path("mine.py").write_text(TASK_MODULE)


def write(config: dict[str, Any], name: str = "config.yml") -> None:
    Path(name).write_text(yaml.safe_dump(config, sort_keys=False))


def invoke(*arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def read(path: str) -> Any:
    return json.loads(Path(path).read_text())


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def assert_same_weights(one: str, other: str) -> None:
    ours, theirs = (load_file(f"{p}/model.safetensors") for p in (one, other))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def stock(recipe: str, out: str) -> None:
    """Run the command that stands in a recipe, in another folder."""
    (command,) = (
        line.split(": ", 1)[1]
        for line in Path(recipe).read_text().splitlines()
        if line.startswith("# Merge it with: ")
    )
    program, *arguments = shlex.split(command)
    arguments = [out if a == "OUT" else a for a in arguments]
    if "--intermediate-dir" in arguments:  # from nothing
        stages = str(Path(f"{out}.stages").resolve())
        arguments[arguments.index("--intermediate-dir") + 1] = stages
    run_mergekit(program, *arguments)


def run_mergekit(program: str, *arguments: str) -> None:
    """Run a stock command, in this process because importing it takes seconds."""
    command = {"mergekit-yaml": run_yaml.main, "mergekit-multi": multimerge.main}
    LoaderCache().loaders.clear()
    result = click.testing.CliRunner().invoke(command[program], [*arguments, "--quiet"])
    LoaderCache().loaders.clear()
    assert result.exception is None, result.output


def test_a_linear_merge_of_merges_is_one_recipe(
    linear_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(linear_run)

    front = read("out.run/front.json")
    assert front["order"] == [["a", "b"], ["c", "d"]]
    recipe = yaml.safe_load(Path("out.run/recipe.yml").read_text())
    chosen = front["points"][front["selected"]]
    weights = [m["parameters"]["weight"] for m in recipe["models"]]
    assert weights == list(chosen["coefficients"].values())
    assert all(m["value"] is not None for m in chosen["measured"].values())
    stock("out.run/recipe.yml", "stock")
    assert_same_weights("out", "stock")


def test_the_fronts_of_all_pairs_are_kept_and_drawn(
    linear_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(linear_run)

    tasks = {"pair-1": TASKS[:2], "pair-2": TASKS[2:], "pair-3": TASKS}
    for name, expected in tasks.items():
        pair = read(f"out.run/nested/{name}/front.json")
        assert tuple(pair["tasks"]) == expected
        assert Path(f"out.run/nested/{name}/front.png").stat().st_size > 1000
    labels = [a["label"] for a in read("out.run/front.json")["anchors"]]
    assert labels == ["base", *NAMES, "soup"]
    # Model d is best at nothing, and yet the third task has a use for it.
    pair = read("out.run/nested/pair-2/front.json")
    assert pair["points"][pair["selected"]]["coefficients"] == pytest.approx(
        {"a": 0, "b": 0, "c": 0.8, "d": 0.6}, abs=0.02
    )


def test_merging_the_pairs_one_after_the_other_gives_the_flat_merge(
    linear_run: Path,
    task_arithmetic: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(linear_run)
    front = read("out.run/front.json")

    # By hand, with stock mergekit: each pair's checkpoint, then the two of them.
    for name in ("pair-1", "pair-2"):
        weights = front["groups"][name].values()
        sources = [m["model"] for m in task_arithmetic["models"]]
        merge_by_hand(task_arithmetic, dict(zip(sources, weights, strict=True)), name)
    chosen = front["points"][front["selected"]]["coefficients"]
    groups = np.array([list(v.values()) for v in front["groups"].values()])
    weights = np.array(list(chosen.values())) @ np.linalg.pinv(groups)
    sources = [str(Path(name).resolve()) for name in front["groups"]]
    merge_by_hand(task_arithmetic, dict(zip(sources, weights, strict=True)), "both")

    ours, theirs = (load_file(f"{p}/model.safetensors") for p in ("out", "both"))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-6)


def merge_by_hand(
    config: dict[str, Any], weights: Mapping[str, float], out: str
) -> None:
    models = [
        {"model": model, "parameters": {"weight": float(weight)}}
        for model, weight in weights.items()
        if weight
    ]
    merge = {k: v for k, v in config.items() if k != "map"}
    Path("hand.yml").write_text(yaml.safe_dump({**merge, "models": models}))
    run_mergekit("mergekit-yaml", "hand.yml", out)


def test_a_merge_of_ties_merges_is_a_recipe_of_stages(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)

    text = Path("out/mergekit_config.yml").read_text()

    first, second, last = yaml.safe_load_all(text)
    names = [merge.get("name") for merge in (first, second, last)]
    assert names == ["pair-1", "pair-2", None]
    assert [m["model"] for m in last["models"]] == ["pair-1", "pair-2"]
    # What was sparsified before it was merged is not sparsified again.
    assert [m["parameters"]["density"] for m in last["models"]] == [1.0, 1.0]
    assert [m["parameters"]["density"] for m in first["models"]] == [0.7, 0.7]
    stock("out/mergekit_config.yml", "stock")
    assert_same_weights("out", "stock")
    for name in ("pair-1", "pair-2"):
        assert_same_weights(f"out.run/nested/merged/{name}", f"stock.stages/{name}")


def test_what_was_measured_of_nested_checkpoints_is_what_is_shipped(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)
    invoke("search", "config.yml", "out.run")
    front = read("out.run/front.json")

    chosen = front["points"][front["selected"]]
    targets = torch.load("targets.pt", weights_only=True)
    shipped = load_file("out/model.safetensors")["lm_head.weight"]
    for task in TASKS:
        value = ((shipped - targets[task]) ** 2).mean().item()
        assert chosen["measured"][task]["value"] == value


def test_a_nested_run_has_the_files_of_any_run(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)

    front = read("out.run/front.json")
    assert list(front["coefficients"]) == ["pair-1", "pair-2"]
    assert [a["label"] for a in front["anchors"]] == ["base", *NAMES, "soup"]
    for anchor in front["anchors"]:
        assert all(r["value"] is not None for r in anchor["measured"].values())
    surrogates = read("out.run/surrogates.json")
    assert surrogates == read("out.run/nested/pair-3/surrogates.json")
    assert len(list(Path("out.run/recipes").iterdir())) == len(front["points"])
    for name in ("pair-1", "pair-2", "pair-3"):
        pair = Path("out.run/nested", name)
        assert (pair / "manifest.json").exists()
        assert (pair / "front.png").exists()
    # The anchors of all models, and nothing else, are measured as merges of all.
    measured = lines("out.run/evaluations.jsonl")
    assert {e["role"] for e in measured} == {"anchor"}
    assert len(measured) == 6 * len(TASKS)


def test_any_point_of_a_nested_front_can_be_merged(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)

    shown = invoke("select", "out.run", "--index", "0")
    merged = invoke("merge", "out.run", "other")

    assert shown.stdout.count("merge_method") == 3
    assert "point 0" in merged.stdout
    assert "mergekit-multi" in merged.stdout
    stock("out.run/recipes/000.yml", "stock0")
    assert_same_weights("other", "stock0")


def test_a_finished_nested_search_measures_and_merges_nothing_again(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)
    run = Path("out.run")
    watched = [
        *run.rglob("evaluations.jsonl"),
        *(run / "nested" / "merged").rglob("model.safetensors"),
    ]
    before = {path: path.stat().st_mtime_ns for path in watched}

    invoke("search", "config.yml", "out.run")

    assert len(before) == 4 + 2
    assert {path: path.stat().st_mtime_ns for path in watched} == before


def test_checkpoints_that_were_merged_on_the_way_are_made_again(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)
    invoke("search", "config.yml", "out.run")
    shutil.rmtree("out.run/nested/merged")

    invoke("merge", "out.run", "again")

    assert_same_weights("again", "out")


def test_a_share_of_a_single_model_can_be_required(
    ties_run: Path, dare_ties: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)
    config = copy.deepcopy(dare_ties)
    config["map"]["select"] = {"require": {"like_cd": "95%"}}
    write(config, "share.yml")

    invoke("search", "share.yml", "out.run")

    front = read("out.run/front.json")
    assert "95% of the best single model" in front["reason"]
    chosen = front["points"][front["selected"]]
    assert all(m["value"] is not None for m in chosen["measured"].values())
    # The pairs that are merged last are no single models.
    singles = [
        a["measured"]["like_cd"]["value"]
        for a in front["anchors"]
        if a["label"] in NAMES
    ]
    limit = min(singles) / 0.95
    assert chosen["predicted"]["like_cd"]["value"] <= limit
    invoke("select", "out.run", "--require", f"like_cd={limit}")
    assert read("out.run/front.json")["selected"] == front["selected"]


def test_goes_on_in_the_pair_where_it_was_stopped(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)
    evaluate, calls = MergeEvaluator.__call__, []

    def stopped(self: Any, coefficients: Any, task: str) -> Any:
        calls.append(task)
        if len(calls) == 18 + 16 + 5:  # anchors, the first pair, some of the second
            raise KeyboardInterrupt("stopped")
        return evaluate(self, coefficients, task)

    with monkeypatch.context() as patch:
        patch.setattr(MergeEvaluator, "__call__", stopped)
        command = ["search", "config.yml", "stopped"]
        result = click.testing.CliRunner().invoke(main, command)
    assert result.exit_code == 130
    assert not Path("stopped/manifest.json").exists()

    invoke("search", "config.yml", "stopped")

    for log in sorted(Path("out.run").rglob("evaluations.jsonl")):
        one, other = (
            [[e["coefficients"], e["task"], e["value"]] for e in lines(str(path))]
            for path in (log, "stopped" / log.relative_to("out.run"))
        )
        # Other tests merge points, which are measured then.
        assert other == one[: len(other)]
    assert len(calls) == 39


@pytest.mark.slow
def test_another_model_is_noticed_on_the_way(
    models: dict[str, Path],
    dare_ties: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tasks(models)
    config = copy.deepcopy(dare_ties)
    del config["models"][3], config["map"]["tasks"]["like_cd"]
    config["map"]["search"]["order"] = [["moving", "b"], "c"]
    shutil.copytree(models["a"], "moving")
    config["models"][0]["model"] = "moving"
    write(config)
    invoke("search", "config.yml", "run")
    shutil.copy(models["d"] / "model.safetensors", "moving")

    result = invoke("search", "config.yml", "run")

    said = " ".join(result.stderr.split())
    assert "models (moving) changed" in said
    assert "models (pair-1) changed" in said
    invoke("merge", "run", "out")
    stock("run/recipe.yml", "stock")
    assert_same_weights("out", "stock")
