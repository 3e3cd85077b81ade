"""Zero-shot accuracy of a merged CLIP image encoder, for clip_vit.yml.

``prepare`` downloads the encoders and the images once; the tasks read what it saved.
An image is of the class whose description is nearest: descriptions come from the text
side of CLIP, which no fine-tune has changed, so they are computed once, too.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import datasets
import numpy as np
import torch
import transformers
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from torch import Tensor

MODELS = Path("clip-models")
DATA = Path("clip-data")
BASE = "openai/clip-vit-base-patch32"
BATCH = 100

# Of CLIP's own preprocessing, for red, green and blue.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class Source:
    """Where an encoder and its images come from, and how a class is described."""

    model: str
    dataset: str
    name: str | None  # configuration of the dataset
    description: str


SOURCES = {
    "sun397": Source(
        "tanganke/clip-vit-base-patch32_sun397",
        "tanganke/sun397",
        None,
        "a photo of a {}.",
    ),
    "cars": Source(
        "tanganke/clip-vit-base-patch32_stanford-cars",
        "tanganke/stanford_cars",
        None,
        "a photo of a {}.",
    ),
    "gtsrb": Source(
        "tanganke/clip-vit-base-patch32_gtsrb",
        "tanganke/gtsrb",
        None,
        'a zoomed in photo of a "{}" traffic sign.',
    ),
    "eurosat": Source(
        "tanganke/clip-vit-base-patch32_eurosat",
        "tanganke/eurosat",
        None,
        "a centered satellite photo of {}.",
    ),
    "resisc45": Source(
        "tanganke/clip-vit-base-patch32_resisc45",
        "tanganke/resisc45",
        None,
        "satellite imagery of {}.",
    ),
    "dtd": Source(
        "tanganke/clip-vit-base-patch32_dtd",
        "tanganke/dtd",
        None,
        "a photo of a {} texture.",
    ),
    "svhn": Source(
        "tanganke/clip-vit-base-patch32_svhn",
        "ufldl-stanford/svhn",
        "cropped_digits",
        'a photo of the number: "{}".',
    ),
    "mnist": Source(
        "tanganke/clip-vit-base-patch32_mnist",
        "ylecun/mnist",
        None,
        'a photo of the number: "{}".',
    ),
}


def accuracy(
    task: str,
    digest: str,
    model: transformers.CLIPVisionModel,
    _tokenizer: Any,
) -> tuple[float, float]:
    """Measure the share of images of a task that are classified right.

    ``digest`` is that of the prepared data. Returns the share and its standard error.
    """
    data = _load(DATA / f"{task}.safetensors", digest)
    mean = torch.tensor(MEAN, device=model.device)[:, None, None]
    std = torch.tensor(STD, device=model.device)[:, None, None]
    projection = data["projection"].to(model.device)  # (embedding, hidden)
    classes = data["classes"].to(model.device)  # (classes, embedding)
    right = []
    for images, labels in zip(
        data["images"].split(BATCH), data["labels"].split(BATCH), strict=True
    ):
        pixels = (images.to(model.device).float() / 255 - mean) / std
        pooled = model(pixel_values=pixels.to(model.dtype)).pooler_output.float()
        # Neither the length of an image's embedding nor CLIP's temperature matters.
        nearest = (pooled @ projection.T @ classes.T).argmax(dim=1)
        right.append(nearest.cpu() == labels)
    hits = torch.cat(right).double()
    share = hits.mean().item()
    return share, float(np.sqrt(share * (1 - share) / (len(hits) - 1)))


@functools.cache
def _load(path: Path, _digest: str) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; run: python clip_vit.py prepare")
    return load_file(path)


def _task(name: str) -> functools.partial[tuple[float, float]]:
    """Make a task whose definition changes when its data do."""
    path = DATA / f"{name}.safetensors"
    known = path.is_file()
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if known else "missing"
    return functools.partial(accuracy, name, digest)


sun397 = _task("sun397")
cars = _task("cars")
gtsrb = _task("gtsrb")
eurosat = _task("eurosat")
resisc45 = _task("resisc45")
dtd = _task("dtd")
svhn = _task("svhn")
mnist = _task("mnist")


@click.group()
def main() -> None:
    """Get ready what clip_vit.yml merges and measures."""


@main.command()
@click.option("--items", default=2000, show_default=True, help="Images per task.")
def prepare(items: int) -> None:
    """Save the encoders, the images and the heads below the working directory."""
    clip = transformers.CLIPModel.from_pretrained(BASE)
    tokenizer = transformers.AutoTokenizer.from_pretrained(BASE)
    save_encoder(BASE, MODELS / "base")
    DATA.mkdir(exist_ok=True)
    for task, source in SOURCES.items():
        save_encoder(source.model, MODELS / task)
        rows = datasets.load_dataset(source.dataset, source.name, split="test")
        # Some datasets are sorted by class.
        rows = rows.shuffle(seed=0).select(range(min(items, len(rows))))
        names = [name.replace("_", " ") for name in rows.features["label"].names]
        described = [source.description.format(name) for name in names]
        size = clip.config.vision_config.image_size
        tensors = {
            "images": image_tensor([row["image"] for row in rows], size),
            "labels": torch.tensor(rows["label"]),
            "projection": clip.visual_projection.weight.detach(),
            "classes": embed(clip, tokenizer, described),
        }
        save_file(tensors, DATA / f"{task}.safetensors")
        click.echo(f"{task}: {len(rows)} images of {len(names)} classes")


def save_encoder(model: str, folder: Path) -> None:
    """Save an image encoder under the names that its tensors have in memory.

    mergekit 0.1.5 looks for those, and leaves out what a file calls otherwise.
    """
    encoder = transformers.CLIPVisionModel.from_pretrained(model)
    encoder.save_pretrained(folder, save_original_format=False)


def image_tensor(images: Sequence[Image.Image], size: int) -> Tensor:
    """Resize and crop images as CLIP does; bytes of (n, 3, size, size)."""
    fitted = [
        ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BICUBIC)
        for image in images
    ]
    stacked = torch.from_numpy(np.stack([np.asarray(image) for image in fitted]))
    return stacked.permute(0, 3, 1, 2).contiguous()


@torch.no_grad()
def embed(clip: transformers.CLIPModel, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Embed texts; (n, embedding), each row of length 1."""
    tokens = tokenizer(list(texts), padding=True, return_tensors="pt")
    pooled = clip.text_model(
        input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]
    ).pooler_output
    return torch.nn.functional.normalize(clip.text_projection(pooled), dim=1)


if __name__ == "__main__":
    main()
