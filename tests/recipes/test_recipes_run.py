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

import numpy as np
import pytest
import torch
import transformers
import yaml
from PIL import Image
from runs import (
    assert_same_weights,
    invoke,
    lines,
    merged_by_stock,
    read,
    tensors_of,
    write,
)
from safetensors.torch import load_file, save_file
from task_files import mean_of, write_choices, write_generation, write_jsonl, write_yaml
from tiny_tokenizer import IDS, SIZES
from tokenizers import processors

SIZE = 16
CLASSES = ["dotted_grid", "plain", "striped"]


def write_images(folder: Path, seed: int, splits: dict[str, int]) -> Path:
    """Write a folder that datasets reads, SPLIT/CLASS/NUMBER.png: a noisy colour each.

    ``seed`` is that of the colours.
    """
    rng = np.random.default_rng(seed)
    colours = rng.integers(30, 225, size=(len(CLASSES), 3))
    for split, count in splits.items():
        for label, colour in zip(CLASSES, colours, strict=True):
            place = folder / split / label
            place.mkdir(parents=True)
            for number in range(count):
                image = rng.normal(colour, 25, size=(SIZE, SIZE, 3))
                pixels = image.clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


def make_clip(folder: Path, tokenizer: transformers.PreTrainedTokenizerFast) -> Path:
    # As CLIP's own: a text is read off where it ends.
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        vision_config={**SIZES, "image_size": SIZE, "patch_size": 4},
        text_config={**SIZES, **IDS, "vocab_size": len(tokenizer)},
        projection_dim=16,
    )
    transformers.CLIPModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tuned_encoder(clip: Path, seed: int, folder: Path) -> Path:
    """Save an encoder near that of CLIP, under the names that older files have."""
    encoder = transformers.CLIPVisionModel.from_pretrained(clip)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    encoder.save_pretrained(folder)
    weights = folder / "model.safetensors"
    tensors = {
        f"vision_model.{name.removeprefix('vision_model.')}": tensor
        for name, tensor in load_file(weights).items()
    }
    save_file(tensors, weights, metadata={"format": "pt"})
    return folder


def clip_accuracy(clip: Path, encoder: Path, images: Path, description: str) -> float:
    """Classify images with nothing but transformers: a CLIP with another encoder."""
    model = transformers.CLIPModel.from_pretrained(clip)
    other = transformers.CLIPVisionModel.from_pretrained(encoder)
    model.vision_model.load_state_dict(other.state_dict())
    tokenizer = transformers.AutoTokenizer.from_pretrained(clip)
    texts = [description.format(name.replace("_", " ")) for name in CLASSES]
    files = sorted(images.glob("test/*/*.png"))
    processor = transformers.CLIPImageProcessor(
        size={"shortest_edge": SIZE}, crop_size=SIZE
    )
    pixels = processor([Image.open(file) for file in files], return_tensors="pt")
    with torch.no_grad():
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        tokens.pop("token_type_ids", None)
        found = model(**tokens, **pixels).logits_per_image.argmax(dim=1)
    assert len(set(found.tolist())) > 1
    right = [CLASSES[i] == f.parent.name for i, f in zip(found, files, strict=True)]
    return sum(right) / len(right)


def make_resnet(folder: Path) -> Path:
    """Save a classifier with a head of its own, as the base on the Hub has one."""
    torch.manual_seed(0)
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    config = transformers.ResNetConfig(**sizes, layer_type="basic", num_labels=7)
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    return folder


pytestmark = pytest.mark.slow  # models are trained

RECIPES = Path(__file__).parents[2] / "recipes"
Config = dict[str, Any]
QUICK = {"evaluations": 8, "remeasure": 1}
FEW = ("sun397", "gtsrb", "mnist")  # of the eight tasks of CLIP, which take long


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work with no shared cache, beside the scripts."""
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
    metric = mean_of(keys["metric"])
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
    merged_by_stock(invoke("run", f"{name}.yml", out, *options).output, "stock")

    assert_same_weights(out, "stock")
    assert not any(line.get("error") for line in lines(f"{out}.run"))
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
        invoke(pickled, *("--out", model, "--dtype", "float32"), command=convert)
    copy_recipe("math_code", evaluations=6)

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
        tuned = save_tuned_encoder(base, seed, hub / task)
        tasks[task] = {"model": str(tuned), "dataset": str(images), "name": None}
    take_sources(script, monkeypatch, base, **tasks)
    invoke("prepare", command=script.main)
    config = copy_recipe("clip_vit", **QUICK)
    config["models"] = [{"model": f"clip-models/{task}"} for task in FEW]
    config["map"]["tasks"] = {task: config["map"]["tasks"][task] for task in FEW}
    write(config, "clip_vit.yml")

    chosen = check_run("clip_vit", "out", "--no-copy-tokenizer")

    # Under the names that transformers looks for, and none left out.
    assert tensors_of("out").keys() == tensors_of("clip-models/base").keys()
    for task, reading in chosen.items():
        images, described = hub / "images" / task, script.SOURCES[task].description
        by_transformers = clip_accuracy(base, Path("stock"), images, described)
        assert reading["value"] == pytest.approx(by_transformers)


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
