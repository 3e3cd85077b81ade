"""Nested MAP on tiny models: what it ships is what it measured, and what stock does."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from mergekit.options import MergeOptions
from runs import (
    NAMES,
    TASKS,
    assert_same_weights,
    finished,
    four_models,
    invoke,
    lines,
    nested_config,
    read,
    stock,
    write,
    write_tasks,
)
from safetensors.torch import load_file

from mergekit_map.evaluation.evaluator import MergeEvaluator
from mergekit_map.evaluation.project import finished_project
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.workflows.nested_checkpoints import finished_pairs


@pytest.fixture(scope="module")
def models(family: dict[str, Path], make_model: Callable[..., Path]) -> dict[str, Path]:
    return four_models(family, make_model)


@pytest.fixture(scope="module")
def task_arithmetic(models: dict[str, Path]) -> dict[str, Any]:
    return nested_config(models, "task_arithmetic")


@pytest.fixture(scope="module")
def linear_run(
    models: dict[str, Path],
    task_arithmetic: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with a finished search, ``out.run``, and what it merged, ``out``."""
    return finished(tmp_path_factory.mktemp("linear"), models, task_arithmetic)


def test_a_linear_merge_of_merges_is_one_recipe(
    linear_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(linear_run)

    front = read("out.run/front.json")
    assert front["order"] == [["a", "b"], ["c", "d"]]
    assert [a["label"] for a in front["anchors"]] == ["base", *NAMES, "soup"]
    # Model d is best at nothing, and yet the third task has a use for it.
    assert front["groups"]["pair-2"] == pytest.approx(
        {"a": 0, "b": 0, "c": 0.8, "d": 0.6}, abs=0.02
    )
    recipe = yaml.safe_load(Path("out.run/recipe.yml").read_text())
    chosen = front["points"][front["selected"]]
    weights = [m["parameters"]["weight"] for m in recipe["models"]]
    assert weights == list(chosen["coefficients"].values())
    assert all(m["value"] is not None for m in chosen["measured"].values())
    stock("out.run/recipe.yml", "stock")
    assert_same_weights("out", "stock")


# A method that elects signs: its merges of merges are stages, and a checkpoint is
# written for each merge of the last pair.


@pytest.fixture(scope="module")
def dare_ties(models: dict[str, Path]) -> dict[str, Any]:
    config = nested_config(models, "dare_ties")
    for model in config["models"]:
        model["parameters"] = {"density": 0.7}
    return config


@pytest.fixture(scope="module")
def ties_run(
    models: dict[str, Path],
    dare_ties: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with a finished search, ``out.run``, and what it merged, ``out``."""
    return finished(tmp_path_factory.mktemp("ties"), models, dare_ties)


@pytest.mark.slow
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
        assert_same_weights(
            f"out.run/.state/nested/merged/{name}", f"stock.stages/{name}"
        )
    # What was measured of merges in memory is what was shipped.
    front = read("out.run/front.json")
    chosen = front["points"][front["selected"]]
    targets = torch.load("targets.pt", weights_only=True)
    shipped = load_file("out/model.safetensors")["lm_head.weight"]
    for task in TASKS:
        value = ((shipped - targets[task]) ** 2).mean().item()
        assert chosen["measured"][task]["value"] == value


@pytest.mark.slow
def test_any_point_of_a_nested_front_can_be_merged(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)

    # Which points a search measures depends on the processor.
    index = next(
        i
        for i, point in enumerate(read("out.run/front.json")["points"])
        if all(reading["value"] is None for reading in point["measured"].values())
    )

    shown = invoke("select", "out.run", "--index", str(index), "--verbose")
    merged = invoke("merge", "out.run", "other", "--trust-run")

    assert shown.stdout.count("merge_method") == 3
    assert "mergekit-multi" in merged.stdout
    stock(f"out.run/recipes/{index:03d}.yml", "stock1")
    assert_same_weights("other", "stock1")
    after = read("out.run/front.json")["points"][index]["measured"]
    assert all(reading["value"] is not None for reading in after.values())


@pytest.mark.slow
def test_a_finished_nested_search_measures_and_merges_nothing_again(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)
    run = Path("out.run")
    watched = [
        *run.rglob("evaluations.jsonl"),
        *(run / ".state/nested/merged").rglob("model.safetensors"),
    ]
    before = {path: path.stat().st_mtime_ns for path in watched}

    invoke("search", "config.yml", "out.run")

    assert len(before) == 4 + 2
    assert {path: path.stat().st_mtime_ns for path in watched} == before


@pytest.mark.slow
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
        invoke("search", "config.yml", "stopped", code=130)
    assert not Path("stopped/.state/manifest.json").exists()

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
def test_the_file_of_a_pair_brings_neither_a_backend_nor_tasks(
    ties_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ties_run)
    shutil.copytree("out.run", "stranger")
    for path in Path("stranger/.state/nested").rglob("*.yml"):
        config = yaml.safe_load(path.read_text())
        if "map" in config:
            config["map"]["merge"] = "disk"
            config["map"]["backend"] = {"name": "no-such-backend"}
            for task in config["map"]["tasks"].values():
                task["python"] = "strange:code"
            path.write_text(yaml.safe_dump(config))
    project = finished_project(Path("stranger"), MergeOptions(), trust_run=True)

    pair, _, _ = finished_pairs(project, RunFolder(Path("stranger")))

    assert pair.space.names == ("pair-1", "pair-2")
    assert (pair.spec.merge, pair.spec.backend) == ("memory", None)
    functions = [getattr(task, "python", "") for task in pair.spec.tasks.values()]
    assert functions == [f"mine:{task}" for task in TASKS]


@pytest.mark.slow
def test_another_model_is_noticed_on_the_way(
    models: dict[str, Path],
    dare_ties: dict[str, Any],
) -> None:
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
    invoke("merge", "run", "out", "--trust-run")
    stock("run/recipe.yml", "stock")
    assert_same_weights("out", "stock")
