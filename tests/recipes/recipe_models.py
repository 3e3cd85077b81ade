"""Tiny stand-ins for what a recipe names: models in folders called as those of the Hub.

A path below the working directory is found before the Hub is asked, so a recipe's own
model ids and its own settings stay as they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from nested_runs import (
    assert_same_weights,
    invoke,
    lines,
    merged_by_stock,
    read,
    write,
)
from recipe_files import RECIPES
from safetensors.torch import load_file
from task_files import write_choices, write_generation, write_jsonl, write_yaml

Config = dict[str, Any]


def copy_recipe(name: str, **search: Any) -> Config:
    """Bring a recipe and its script to the working directory, to measure local text.

    ``search`` are keys of the search that make a test take less long.
    """
    config: Config = yaml.safe_load((RECIPES / f"{name}.yml").read_text())
    script = RECIPES / f"{name}.py"
    if script.is_file():
        shutil.copy(script, script.name)
    for task, keys in config["map"]["tasks"].items():
        if "perplexity" in keys:
            keys["perplexity"] = {"file": _write_text(task), "field": "text"}
        elif "lm_eval" in keys:
            keys["lm_eval"] = _write_task(keys)
    config["map"]["search"].update(search)
    write(config, f"{name}.yml")
    return config


def _write_text(task: str) -> str:
    rows = [{"text": f"{task} {n} {task[::-1]} {n * n}"} for n in range(12)]
    return write_jsonl(Path(f"{task}.jsonl"), rows).name


def _write_task(keys: Mapping[str, Any]) -> str:
    """Write a task of the same name, with the metric and the filter that is read."""
    folder, name = Path.cwd(), keys["lm_eval"]
    metric = {"metric": keys["metric"], "aggregation": "mean", "higher_is_better": True}
    if not keys.get("filter"):
        return write_choices(folder, name, metric_list=[metric]).name
    path = write_generation(folder, name, draws=False)
    content = yaml.safe_load(path.read_text())
    content["filter_list"][0]["name"] = keys["filter"]
    return write_yaml(path, {**content, "metric_list": [metric]}).name


def place(model: Path, reference: str) -> Path:
    """Copy a model to the folder that a recipe's id names."""
    folder = Path(reference)
    shutil.copytree(model, folder)
    return folder


def pickle_weights(model: Path, folder: Path) -> Path:
    """Save a model as older ones lie on the Hub."""
    shutil.copytree(model, folder)
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    return folder


def check_run(name: str, out: str, *options: str) -> Config:
    """Run the recipe in the working directory; returns what was measured in the end.

    Stock mergekit, by the command that a run ends with, writes ``stock``.
    """
    result = invoke("run", f"{name}.yml", out, *options)

    merged_by_stock(result.output, "stock")
    assert_same_weights(out, "stock")
    log = lines(f"{out}.run/evaluations.jsonl")
    assert not any(line.get("error") for line in log)
    front = read(f"{out}.run/front.json")
    measured: Config = front["points"][front["selected"]]["measured"]
    assert all(reading["value"] is not None for reading in measured.values())
    return measured
