"""Tiny stand-ins for what a recipe names: models in folders called as those of the Hub.

A path below the working directory is found before the Hub is asked, so a recipe's own
model ids and its own settings stay as they are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click.testing
import torch
import yaml
from mergekit.io.tasks import LoaderCache
from mergekit.scripts import run_yaml
from recipe_files import RECIPES
from safetensors.torch import load_file
from task_files import write_choices, write_generation, write_jsonl, write_yaml

from mergekit_map.cli.main import main

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
    write_config(name, config)
    return config


def write_config(name: str, config: Config) -> None:
    Path(f"{name}.yml").write_text(yaml.safe_dump(config, sort_keys=False))


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


def invoke(command: click.Command, *arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def run_recipe(name: str, out: str, *options: str) -> click.testing.Result:
    """Run the recipe in the working directory."""
    return invoke(main, "run", f"{name}.yml", out, *options)


def stock_merge(result: click.testing.Result, out: str) -> Path:
    """Carry out the command of mergekit that a run ends with, into another folder."""
    said = result.output.split("mergekit alone writes the same tensors with:\n")[
        1
    ].split("\n")[0]
    words = [out if word == "OUT" else word for word in said.split()]
    assert words[0] == "mergekit-yaml"
    assert out in words
    LoaderCache().loaders.clear()
    invoke(run_yaml.main, *words[1:], "--quiet", "--no-write-model-card")
    LoaderCache().loaders.clear()
    return Path(out)


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for file in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def assert_same_bits(one: Path, other: Path) -> None:
    ours, theirs = read_tensors(one), read_tensors(other)
    assert ours.keys() == theirs.keys()
    assert ours
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        assert torch.equal(ours[name], tensor), name


def read_front(run: str) -> Config:
    front: Config = json.loads(Path(run, "front.json").read_text())
    return front


def read_lines(run: str) -> list[Config]:
    text = Path(run, "evaluations.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
