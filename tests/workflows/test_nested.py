"""Nested MAP on tiny models: what it ships is what it measured, and what stock does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from nested_runs import (
    NAMES,
    TASKS,
    assert_same_weights,
    finished,
    four_models,
    nested_config,
    read,
    run_mergekit,
    stock,
)
from safetensors.torch import load_file


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
        pair = read(f"out.run/.state/nested/{name}/front.json")
        assert tuple(pair["tasks"]) == expected
        picture = Path(f"out.run/.state/nested/{name}/front.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
    labels = [a["label"] for a in read("out.run/front.json")["anchors"]]
    assert labels == ["base", *NAMES, "soup"]
    # Model d is best at nothing, and yet the third task has a use for it.
    pair = read("out.run/.state/nested/pair-2/front.json")
    assert pair["points"][pair["selected"]]["coefficients"] == pytest.approx(
        {"a": 0, "b": 0, "c": 0.8, "d": 0.6}, abs=0.02
    )


def test_merging_the_pairs_one_after_the_other_gives_the_flat_merge(
    linear_run: Path, task_arithmetic: dict[str, Any], monkeypatch: pytest.MonkeyPatch
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
