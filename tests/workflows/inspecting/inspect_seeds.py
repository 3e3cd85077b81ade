"""Seeded incompatibilities, and what ``inspect`` says of a configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import torch
import yaml
from model_files import (
    Edit,
    edit_config,
    edit_json,
    edit_tensors,
    edit_tokenizer,
    noise,
    swap_tokens,
)

from mergekit_map.cli.main import main

MakeModel = Callable[..., Path]

UP = "model.layers.0.mlp.up_proj.weight"


def remove(*names: str) -> Edit:
    def edit(model: Path) -> None:
        for name in names:
            (model / name).unlink()

    return edit


def write(name: str, text: str) -> Edit:
    return lambda model: (model / name).write_text(text) and None


def cut_short(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def pickle(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


def make_nan(tensors: dict[str, torch.Tensor]) -> None:
    tensors[UP][3, 4] = float("nan")


def start_anew(tensors: dict[str, torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(99)
    for name, tensor in tensors.items():
        tensors[name] = torch.randn(tensor.shape, generator=generator) * tensor.std()


def tie_embeddings(model: Path) -> None:
    edit_config(tie_word_embeddings=True)(model)
    edit_tensors(lambda tensors: tensors.__delitem__("lm_head.weight"))(model)


# What is wrong with a copy of a good fine-tune, and what is said of it: a code, and a
# part of the cause.
SEEDS: dict[str, tuple[Edit, str, str]] = {
    "architecture": (edit_config(model_type="mistral"), "architecture", "mistral here"),
    "rope theta": (
        edit_config(rope_theta=1e6, rope_parameters=None),
        "rope",
        "rope_theta is 1e+06 here and 10000 in base",
    ),
    "tied embeddings": (tie_embeddings, "tied-embeddings", "has a head beside"),
    "quantized": (
        edit_config(quantization_config={"quant_method": "awq", "bits": 4}),
        "quantized",
        "(awq)",
    ),
    "configuration damaged": (write("config.json", "{"), "model", "config.json is not"),
    "token ids": (edit_tokenizer(swap_tokens), "vocabulary", "names or ids"),
    "token name": (
        edit_tokenizer(lambda t: t["added_tokens"][-1].update(content="<|im_start|>")),
        "vocabulary",
        "is '<|im_start|>' here and 'three' there",
    ),
    "end of text": (
        edit_json("tokenizer_config.json", eos_token="<pad>"),
        "special-tokens",
        "eos_token is '<pad>' here and '</s>' in base",
    ),
    "tokenizer damaged": (write("tokenizer.json", "{"), "tokenizer", "be loaded"),
    "tokenizer gone": (remove("tokenizer.json"), "tokenizer-missing", "no tokenizer"),
    "tensor gone": (
        edit_tensors(lambda tensors: tensors.pop("model.norm.weight")),
        "tensors-missing",
        "model.norm.weight",
    ),
    "shape": (
        edit_tensors(lambda tensors: tensors.update({UP: tensors[UP][:, :16]})),
        "tensor-shapes",
        "and [64, 32] in",
    ),
    "cut short": (cut_short, "weights", "its download may have been cut"),
    "pickled": (pickle, "weights", "its pickled weights"),
    "not a number": (edit_tensors(make_nan), "weights-not-finite", f"('{UP}')"),
    "another family": (edit_tensors(start_anew), "unrelated", "not a fine-tune of"),
    "another base": (
        edit_tensors(lambda tensors: noise(tensors, 0.015, 77)),
        "norm-ratio",
        "0.01 to 0.02 in the paper",
    ),
}
WARNINGS = ("adapter-base", "norm-ratio", "special-tokens", "tied-embeddings")
WARNINGS += ("tokenizer-missing",)


def named(code: str) -> list[tuple[str, str]]:
    """Give a finding, which is an error unless it is listed above."""
    return [(code, "warning" if code in WARNINGS else "error")]


def configure(base: Path, models: list[str], **changes: Any) -> dict[str, Any]:
    tasks = {"text": {"perplexity": {"file": "text.txt"}, "max_tokens": 9000}}
    search = {"surrogate": "regularized", "evaluations": 60, "remeasure": 0}
    return {
        "merge_method": "task_arithmetic",
        "base_model": str(base),
        "models": [{"model": model} for model in models],
        "map": {"tasks": tasks, "search": search},
        **changes,
    }


def inspect(config: dict[str, Any], *options: str) -> click.testing.Result:
    Path("config.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    arguments = ["inspect", "config.yml", *options]
    result = click.testing.CliRunner().invoke(main, arguments)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def inspected(config: dict[str, Any], *options: str) -> dict[str, Any]:
    result = inspect(config, "--json", *options)
    content: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if content["mergeable"] else 2)
    return content


def found(content: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Give codes and severities of every model, by its folder."""
    return {
        model["name"]: [(f["code"], f["severity"]) for f in model["findings"]]
        for model in content["models"]
    }
