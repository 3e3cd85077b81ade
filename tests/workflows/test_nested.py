"""Nested MAP on tiny models: it ships what it measured, which is what stock writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from runs import assert_same_weights, invoke, read, stock, write_plain
from safetensors.torch import load_file

NAMES = "abcd"
TASKS = ("like_a", "like_b", "like_cd")
TASK_MODULE = """
import torch

targets = torch.load("targets.pt", weights_only=True)

def away(model, task):
    return ((model.lm_head.weight.float() - targets[task]) ** 2).mean().item()
"""
TASK = "def {0}(model, tokenizer): return away(model, '{0}')\n"
SEARCH = {
    "strategy": "nested",
    "order": [["a", "b"], ["c", "d"]],
    "evaluations": 7,
    "remeasure": 2,
}


# A method that adds up, and one that elects signs and draws random numbers.
@pytest.fixture(scope="module", params=["task_arithmetic", "dare_ties"])
def run_of_method(
    family: dict[str, Path],
    make_model: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Path:
    """A folder with a finished search, ``out.run``, and what it merged, ``out``.

    Four models, three tasks: how far the output layer is from what it should be.
    """
    models = {**family, "d": make_model("d", 4, family["base"])}
    files = {n: load_file(path / "model.safetensors") for n, path in models.items()}
    heads = {n: tensors["lm_head.weight"] for n, tensors in files.items()}
    base = heads["base"]
    both = base + 0.8 * (heads["c"] - base) + 0.6 * (heads["d"] - base)
    targets = {"like_a": heads["a"], "like_b": heads["b"], "like_cd": both}
    density = 0.7 if request.param == "dare_ties" else None
    merge = {"names": NAMES, "method": request.param, "density": density}
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.save(targets, "targets.pt")
        code = TASK_MODULE + "".join(map(TASK.format, TASKS))
        write_plain(models, TASKS, code, **merge, **SEARCH)
        invoke("run", "config.yml", "out")
    return folder


@pytest.fixture(autouse=True)
def _there(run_of_method: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run_of_method)


def test_a_merge_of_merges_is_one_recipe() -> None:
    front = read("out.run/front.json")
    assert front["order"] == [["a", "b"], ["c", "d"]]
    assert [a["label"] for a in front["anchors"]] == ["base", *NAMES, "soup"]
    # Model d is best at nothing, and yet the third task has a use for it.
    group = front["groups"]["pair-2"]
    assert (group["a"], group["b"]) == (0, 0)
    assert min(group["c"], group["d"]) > 0.3
    recipe = yaml.safe_load(Path("out.run/recipe.yml").read_text())
    if recipe["merge_method"] == "task_arithmetic":
        # It is the optimum of its task, where no parts are dropped.
        assert group == pytest.approx({"a": 0, "b": 0, "c": 0.8, "d": 0.6}, abs=0.02)
    chosen = front["points"][front["selected"]]
    weights = [m["parameters"]["weight"] for m in recipe["models"]]
    assert weights == list(chosen["coefficients"].values())
    stock("out.run/recipe.yml", "stock")
    assert_same_weights("out", "stock")
    # What was measured of merges in memory is what was shipped.
    targets = torch.load("targets.pt", weights_only=True)
    shipped = load_file("out/model.safetensors")["lm_head.weight"]
    for task in TASKS:
        value = ((shipped - targets[task]) ** 2).mean().item()
        assert chosen["measured"][task]["value"] == value
