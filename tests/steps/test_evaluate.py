"""Merging and the tasks together, on tiny models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mergekit_map.measurement import Measurement
from mergekit_map.steps.evaluate import merges_in_memory
from mergekit_map.steps.project import load_project


@pytest.fixture
def config(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """A text and a function of one's own as tasks."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("hello world, one plus two\n" * 40)
    Path("own.py").write_text("def f(model, tokenizer):\n    return 0.5\n")
    models = [{"model": str(family[n]), "parameters": {"density": 0.5}} for n in "ab"]
    return {
        "merge_method": "ties",
        "base_model": str(family["base"]),
        "models": models,
        "map": {
            "tasks": {
                "text": {"perplexity": {"file": "text.txt"}, "max_tokens": 300},
                "own": {"python": "own:f", "direction": "maximize"},
            },
        },
    }


def measured(
    config: dict[str, Any], coefficients: Mapping[str, float], **search: Any
) -> dict[str, Measurement]:
    config["map"]["search"] = search
    Path("config.yml").write_text(yaml.safe_dump(config))
    with merges_in_memory(load_project(Path("config.yml"))) as merges:
        return {task: measure() for task, measure in merges.at(coefficients).items()}


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [False, True])
def test_gradients_come_with_perplexity_and_change_nothing_else(
    config: dict[str, Any], checkpoint: bool
) -> None:
    coefficients = {"a": 0.4, "b": 0.7}
    plain = measured(config, coefficients)
    switches = {"gradients": True, "checkpoint_activations": checkpoint}

    found = measured(config, coefficients, **switches)

    gradient = found["text"].gradient
    assert gradient is not None
    assert gradient.keys() == coefficients.keys()
    assert found == {**plain, "text": replace(plain["text"], gradient=gradient)}


def test_a_gradient_is_of_the_merge_that_was_written_last(
    config: dict[str, Any],
) -> None:
    config["map"]["search"] = {"gradients": True}
    Path("config.yml").write_text(yaml.safe_dump(config))
    with merges_in_memory(load_project(Path("config.yml"))) as merges:
        gradients = [
            merges.at({"a": x, "b": 0.5})["text"]().gradient for x in (0.2, 0.9, 0.2)
        ]

    assert gradients[0] == gradients[2]
    assert gradients[0] != gradients[1]
