"""Coefficients finer than a model, from YAML to checkpoint: layers and filters."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import pytest
import torch
import yaml
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from safetensors.torch import load_file

from mergekit_map.cli.main import main

WEIGHTS = {
    "a": ["early", "late"],
    "b": [{"filter": "mlp", "value": "b_mlp"}, {"value": 0.25}],
}


@pytest.mark.parametrize(
    "method", ["task_arithmetic", pytest.param("ties", marks=pytest.mark.slow)]
)
def test_layer_groups_and_filters_are_searched_in_the_same_fit(
    family: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("hello world, one plus two\n" * 20)
    Path("code.txt").write_text("def return three\n" * 20)
    texts = {
        n: {"perplexity": {"file": f"{n}.txt"}, "block": 32} for n in ("text", "code")
    }
    models = [
        {"model": str(family[name]), "parameters": {"weight": weight}}
        for name, weight in WEIGHTS.items()
    ]
    config = {
        "merge_method": method,
        "base_model": str(family["base"]),
        "models": models,
        "dtype": "float32",
        "map": {
            "tasks": texts,
            "search": {
                "evaluations": 6,
                "surrogate": "regularized",
                "gradients": True,
                "remeasure": 0,
            },
        },
    }
    Path("config.yml").write_text(yaml.safe_dump(config, sort_keys=False))

    result = click.testing.CliRunner().invoke(main, ["run", "config.yml", "out"])

    assert result.exit_code == 0, result.output
    front = json.loads(Path("out.run/front.json").read_text())
    assert list(front["coefficients"]) == ["early", "late", "b_mlp"]
    recipe = yaml.safe_load(Path("out.run/recipe.yml").read_text())
    chosen = front["points"][front["selected"]]["coefficients"]
    weights = [m["parameters"]["weight"] for m in recipe["models"]]
    assert weights[0] == [chosen["early"], chosen["late"]]
    assert weights[1] == [{"filter": "mlp", "value": chosen["b_mlp"]}, {"value": 0.25}]
    run_merge(MergeConfiguration.model_validate(recipe), "stock", MergeOptions())
    ours, stock = (
        load_file("out/model.safetensors"),
        load_file("stock/model.safetensors"),
    )
    assert ours.keys() == stock.keys()
    assert all(torch.equal(ours[name], stock[name]) for name in stock)
