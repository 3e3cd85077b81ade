"""The recipes for images, run on tiny models, from preparing to what they ship."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from nested_runs import invoke, read, tensors_of, write
from recipe_files import RECIPES
from recipe_images import (
    CLASSES,
    SIZE,
    fine_tune_encoder,
    make_clip,
    make_resnet,
    write_images,
)
from recipe_models import check_run, copy_recipe

pytestmark = pytest.mark.slow  # models are trained

QUICK = {"evaluations": 10, "remeasure": 1}
FEW = ("sun397", "gtsrb", "mnist")  # of the eight tasks of CLIP, which take long


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, no shared cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


def load_script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a script of the recipes; what it saved already is found by its tasks."""
    monkeypatch.syspath_prepend(RECIPES)
    return importlib.reload(importlib.import_module(name))


def replace_sources(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, **changes: dict[str, Any]
) -> None:
    sources = {
        task: dataclasses.replace(script.SOURCES[task], **keys)
        for task, keys in changes.items()
    }
    monkeypatch.setattr(script, "SOURCES", sources)


@pytest.fixture(scope="module")
def clip_hub(
    make_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Models and images as they would lie on the Hub."""
    hub = tmp_path_factory.mktemp("clip")
    with pytest.MonkeyPatch.context() as patch:
        script = load_script("clip_vit", patch)
    tokenizer = transformers.AutoTokenizer.from_pretrained(make_model("base", 0))
    base = make_clip(hub / "base", tokenizer)
    for seed, task in enumerate(FEW):
        images = write_images(hub / "images" / task, seed, {"test": 12})
        fine_tune_encoder(script, base, task, images, hub / task)
    return hub


@pytest.fixture
def clip_vit(
    clip_hub: Path,
    workplace: Path,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> ModuleType:
    """The script, with models and images to prepare."""
    script = load_script("clip_vit", monkeypatch)
    monkeypatch.setattr(script, "BASE", str(clip_hub / "base"))
    changes = {
        task: {
            "model": str(clip_hub / task),
            "dataset": str(clip_hub / "images" / task),
            "name": None,
        }
        for task in FEW
    }
    replace_sources(script, monkeypatch, **changes)
    return script


def test_clip_encoders_are_measured_as_they_are_shipped(clip_vit: ModuleType) -> None:
    invoke("prepare", "--items", "30", command=clip_vit.main)
    config = copy_recipe("clip_vit", **QUICK)
    config["models"] = [{"model": f"clip-models/{task}"} for task in FEW]
    config["map"]["tasks"] = {task: config["map"]["tasks"][task] for task in FEW}
    write(config, "clip_vit.yml")

    chosen = check_run("clip_vit", "out", "--no-copy-tokenizer")

    # Under the names that transformers looks for, and none left out.
    assert tensors_of("out").keys() == tensors_of("clip-models/base").keys()
    shipped = transformers.CLIPVisionModel.from_pretrained("stock").eval()
    with torch.no_grad():
        for task, reading in chosen.items():
            value, stderr = clip_vit.accuracy(task, "any", shipped, None)
            assert reading["value"] == value
            assert reading["stderr"] == stderr
    # Each encoder knows its own images better than the base does.
    anchors = {a["label"]: a["measured"] for a in read("out.run/front.json")["anchors"]}
    for task in chosen:
        assert anchors[task][task]["value"] > anchors["base"][task]["value"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the first three commands of the script were run."""
    place = tmp_path_factory.mktemp("resnet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("datasets.config.HF_DATASETS_CACHE", place / "cache")
        script = load_script("resnet18", patch)
        patch.setattr(script, "BASE", str(make_resnet(place / "hub" / "resnet")))
        changes = {}
        for seed, task in enumerate(script.SOURCES):
            counts = {"train": 20, "validation": 4, "test": 10}
            images = write_images(place / "images" / task, seed, counts)
            changes[task] = {"dataset": str(images), "image": "image"}
        replace_sources(script, patch, **changes)
        sizes = ["--train", "60", "--test", "30", "--size", str(SIZE)]
        invoke("prepare", *sizes, command=script.main)
        tuning = ("--epochs", "2", "--rate", "0.003")
        for task in script.SOURCES:
            invoke("fine-tune", task, *tuning, command=script.main)
    return place


@pytest.fixture
def resnet18(
    prepared: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """The script after its first three commands, on what lies beside it."""
    shutil.copytree(prepared, workplace, dirs_exist_ok=True)
    script = load_script("resnet18", monkeypatch)
    monkeypatch.setattr(script, "BASE", str(workplace / "hub" / "resnet"))
    return script


def test_resnets_are_shipped_as_measured_once_the_head_is_refitted(
    resnet18: ModuleType,
) -> None:
    copy_recipe("resnet18", **QUICK)

    chosen = check_run("resnet18", "out", "--no-copy-tokenizer")

    for task, reading in chosen.items():
        said = invoke(
            "refit", "stock", task, f"out-{task}", command=resnet18.main
        ).output
        data = resnet18.load_images(task, "now")
        whole = transformers.AutoModelForImageClassification.from_pretrained(
            f"out-{task}"
        )
        assert resnet18.measure_whole(whole, data) == reading["value"]
        assert list(whole.config.id2label.values()) == sorted(CLASSES)
        assert f"accuracy {reading['value']:.4f}" in said
        # Far better than guessing.
        assert reading["value"] > 1.5 / len(CLASSES)


def test_the_head_is_the_solution_of_the_ridge_regression(resnet18: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 5, generator=generator).double() * torch.arange(1, 6)
    labels = torch.randint(3, (40,), generator=generator)
    head = resnet18.fit_head(inputs, labels, 3)

    # At the minimum of the penalised squares their gradient is zero.
    weight = head.weight.clone().requires_grad_()
    bias = head.bias.clone().requires_grad_()
    targets = torch.nn.functional.one_hot(labels).double()
    centred = inputs - inputs.mean(dim=0)
    penalty = resnet18.RIDGE * (centred**2).sum() / inputs.shape[1]
    errors = inputs @ weight.T + bias - targets
    ((errors**2).sum() + penalty * (weight**2).sum()).backward()
    torch.testing.assert_close(weight.grad, torch.zeros_like(weight))
    torch.testing.assert_close(bias.grad, torch.zeros_like(bias))
