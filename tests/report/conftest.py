"""Finished searches of tiny models, made once by the command line, for the reports."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_fronts import fronts_of_few_points
from runs import invoke, write, write_plain
from safetensors.torch import load_file

# Tasks measure how far the output layer is from that of a model.
TASK_MODULE = """
import math
import torch

heads = torch.load("heads.pt", weights_only=True)

def away(model, name):
    return 3000 * ((model.lm_head.weight.float() - heads[name]) ** 2).mean().item()

def loss(model, name):
    return 1.5 + away(model, name) ** 1.1, 0.02

def score(model, name):
    return 0.25 + 0.6 / (1 + math.exp(2 * away(model, name) - 2)), 0.02

def a_score(model, tokenizer): return score(model, "a")
def b_loss(model, tokenizer): return loss(model, "b")
def c_score(model, tokenizer): return score(model, "c")

def b_sometimes(model, tokenizer):
    value = score(model, "b")
    if 0.5 < value[0] < 0.7:
        raise RuntimeError("the <b>grader</b> gave up")
    return value
"""
SCORE = {"direction": "maximize", "range": [0, 1]}
LOSS = {"direction": "minimize"}
TASKS: dict[str, dict[str, Any]] = {
    "math": {"python": "mine:a_score", **SCORE},
    "code_loss": {"python": "mine:b_loss", **LOSS},
    "chat": {"python": "mine:c_score", **SCORE},
    "sometimes": {"python": "mine:b_sometimes", **SCORE},
}

# What is merged, measured, and else asked for.
THREE, MORE = ["math", "code_loss", "chat"], {"evaluations": 14}
SEARCHES: dict[str, tuple[str, list[str], dict[str, Any], dict[str, Any]]] = {
    "one": ("a", ["math"], {}, {}),
    "two": ("ab", ["math", "code_loss"], {}, {"prefer": {"math": 2, "code_loss": 1}}),
    "three": ("abc", THREE, {**MORE, "refine": True}, {"require": {"math": "70%"}}),
    "failing": ("ab", [*THREE, "sometimes"], {"surrogate": "residual_gp", **MORE}, {}),
}
NESTED = {"strategy": "nested", "order": [["a", "b"], "c"], "evaluations": 8}
SEARCHES["nested"] = ("abc", THREE, NESTED, {})


@pytest.fixture(scope="session")
def finished_run(
    family: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Make the run folder of a search by its name, once."""

    @functools.cache
    def make(name: str) -> Path:
        models, tasks, search, select = SEARCHES[name]
        folder = tmp_path_factory.mktemp(name)
        heads = {
            n: load_file(path / "model.safetensors")["lm_head.weight"]
            for n, path in family.items()
        }
        torch.save(heads, folder / "heads.pt")
        measured = {task: TASKS[task] for task in tasks}
        method = "ties" if name == "nested" else "task_arithmetic"
        # Points of three tasks enough to move along, where that costs little.
        few = fronts_of_few_points(24 if name == "three" else 10)
        with few, pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            merge = {"names": models, "method": method}
            config = write_plain(family, measured, TASK_MODULE, **merge)
            config["map"] |= {"search": {"remeasure": 3, **search}, "select": select}
            write(config)
            invoke("search", "config.yml", "run")
            return folder / "run"

    return make


@pytest.fixture
def two(finished_run: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the search of two tasks, to be changed."""
    return Path(shutil.copytree(finished_run("two"), tmp_path / "run"))
