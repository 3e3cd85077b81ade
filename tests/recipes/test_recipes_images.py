"""The recipes for images, run on tiny models, from preparing to what they ship."""

from __future__ import annotations

import dataclasses
import importlib
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


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory of one's own, with no shared cache, beside the scripts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.syspath_prepend(RECIPES)


def take_sources(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, base: Path, **tasks: Any
) -> None:
    """Let a script find its base model and the data of tasks in folders."""
    sources = {
        task: dataclasses.replace(script.SOURCES[task], **keys)
        for task, keys in tasks.items()
    }
    monkeypatch.setattr(script, "SOURCES", sources)
    monkeypatch.setattr(script, "BASE", str(base))


def test_clip_encoders_are_measured_as_they_are_shipped(
    make_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = importlib.import_module("clip_vit")
    tokenizer = transformers.AutoTokenizer.from_pretrained(make_model("base", 0))
    base, hub = make_clip(Path("hub/base"), tokenizer), Path("hub").resolve()
    tasks = {}
    for seed, task in enumerate(FEW):
        images = write_images(hub / "images" / task, seed, {"test": 12})
        tuned = fine_tune_encoder(script, base, task, images, hub / task)
        tasks[task] = {"model": str(tuned), "dataset": str(images), "name": None}
    take_sources(script, monkeypatch, base, **tasks)
    invoke("prepare", "--items", "30", command=script.main)
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
            value, stderr = script.accuracy(task, "any", shipped, None)
            assert reading["value"] == value
            assert reading["stderr"] == stderr
    # Each encoder knows its own images better than the base does.
    anchors = {a["label"]: a["measured"] for a in read("out.run/front.json")["anchors"]}
    for task in chosen:
        assert anchors[task][task]["value"] > anchors["base"][task]["value"]


def test_resnets_are_shipped_as_measured_once_the_head_is_refitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = importlib.import_module("resnet18")
    tasks = {}
    for seed, task in enumerate(script.SOURCES):
        counts = {"train": 20, "validation": 4, "test": 10}
        images = write_images(Path("images", task).resolve(), seed, counts)
        tasks[task] = {"dataset": str(images), "image": "image"}
    take_sources(script, monkeypatch, make_resnet(Path("hub/resnet")), **tasks)
    sizes = ("--train", "60", "--test", "30", "--size", str(SIZE))
    invoke("prepare", *sizes, command=script.main)
    for task in tasks:
        tuning = ("--epochs", "2", "--rate", "0.003")
        invoke("fine-tune", task, *tuning, command=script.main)
    copy_recipe("resnet18", **QUICK)

    chosen = check_run("resnet18", "out", "--no-copy-tokenizer")

    for task, reading in chosen.items():
        out = f"out-{task}"
        said = invoke("refit", "stock", task, out, command=script.main).output
        data = script.load_images(task, "now")
        whole = transformers.AutoModelForImageClassification.from_pretrained(out)
        assert script.measure_whole(whole, data) == reading["value"]
        assert list(whole.config.id2label.values()) == CLASSES
        assert f"accuracy {reading['value']:.4f}" in said
        # Far better than guessing.
        assert reading["value"] > 1.5 / len(CLASSES)
