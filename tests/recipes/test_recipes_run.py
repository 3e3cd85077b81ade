"""The recipes run on tiny models, from preparing to what they ship as measured.

A path below the working directory is found before the Hub is asked, so a recipe's own
model ids and its own settings stay as they are.
"""

from __future__ import annotations

import dataclasses
import importlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
import yaml
from nested_runs import (
    assert_same_weights,
    invoke,
    lines,
    merged_by_stock,
    read,
    tensors_of,
    write,
)
from recipe_images import (
    CLASSES,
    SIZE,
    fine_tune_encoder,
    make_clip,
    make_resnet,
    write_images,
)
from safetensors.torch import load_file
from task_files import write_choices, write_generation, write_jsonl, write_yaml

pytestmark = pytest.mark.slow  # models are trained

RECIPES = Path(__file__).parents[2] / "recipes"
Config = dict[str, Any]
QUICK = {"evaluations": 10, "remeasure": 1}
FEW = ("sun397", "gtsrb", "mnist")  # of the eight tasks of CLIP, which take long


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory of one's own, with no shared cache, beside the scripts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.syspath_prepend(RECIPES)


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
            rows = [{"text": f"{task} {n} {task[::-1]} {n * n}"} for n in range(12)]
            file = write_jsonl(Path(f"{task}.jsonl"), rows).name
            keys["perplexity"] = {"file": file, "field": "text"}
        elif "lm_eval" in keys:
            keys["lm_eval"] = write_task(keys)
    config["map"]["search"].update(search)
    write(config, f"{name}.yml")
    return config


def write_task(keys: Mapping[str, Any]) -> str:
    """Write a task of the same name, with the metric and the filter that is read."""
    folder, name = Path.cwd(), keys["lm_eval"]
    metric = {"metric": keys["metric"], "aggregation": "mean", "higher_is_better": True}
    if not keys.get("filter"):
        return write_choices(folder, name, metric_list=[metric]).name
    path = write_generation(folder, name, draws=False)
    content = yaml.safe_load(path.read_text())
    content["filter_list"][0]["name"] = keys["filter"]
    return write_yaml(path, {**content, "metric_list": [metric]}).name


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


def test_math_and_code_from_pickles_with_another_padding_token(
    make_model: Callable[..., Path],
) -> None:
    convert = importlib.import_module("to_safetensors").main
    base = Path("meta-llama/Llama-2-13b-hf")
    shutil.copytree(make_model("base", 0), base)
    for seed, model in enumerate(
        ["vanillaOVO/WizardMath-13B-V1.0", "layoric/llama-2-13b-code-alpaca"], start=1
    ):
        tuned = make_model(Path(model).name, seed, base, extra_tokens=("[PAD]",))
        pickled = Path("hub", model)  # as older ones lie on the Hub
        without = shutil.ignore_patterns("model.safetensors")
        shutil.copytree(tuned, pickled, ignore=without)
        weights = load_file(tuned / "model.safetensors")
        torch.save(weights, pickled / "pytorch_model.bin")
        options = ("--out", model, "--dtype", "float32")
        invoke(pickled, *options, command=convert)
    copy_recipe("math_code", evaluations=9)

    check_run("math_code", "math-code")


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
