"""Accuracy of a merged ResNet whose head is refitted, for resnet18.yml.

What is merged has no head, and batch statistics of no use. A task therefore takes the
statistics anew on training images, fits a head to them, and measures test images; it
leaves the model as it was. ``refit`` does the same for good.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import datasets
import numpy as np
import torch
import transformers
from PIL import Image, ImageOps
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

MODELS = Path("resnet-models")
DATA = Path("resnet-data")
BASE = "microsoft/resnet-18"
BATCH = 50
RIDGE = 1e-3  # penalty, relative to the mean variance of a feature

# Of ImageNet, for red, green and blue.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Source:
    """Where the images of a task come from."""

    dataset: str
    image: str  # the column
    train: str  # the split
    test: str


SOURCES = {
    "cifar10": Source("uoft-cs/cifar10", "img", "train", "test"),
    "flowers102": Source(
        "dpdl-benchmark/oxford_flowers102", "image", "train+validation", "test"
    ),
    "gtsrb": Source("tanganke/gtsrb", "image", "train", "test"),
}


class HeadlessResNet(transformers.ResNetModel):
    """A ResNet under a name that transformers does not know.

    mergekit 0.1.5 asks transformers' own classes for their token embeddings and stops
    where there are none. Of a class that it cannot make, it takes the tensors as the
    file has them.
    """


@dataclass(frozen=True, eq=False)
class Images:
    """What ``prepare`` saved of a task; images are bytes of (n, 3, size, size)."""

    train_images: Tensor
    train_labels: Tensor  # (n,)
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Head:
    """A linear classifier of pooled features."""

    weight: Tensor  # (classes, features)
    bias: Tensor  # (classes,)

    def classify(self, features: Tensor) -> Tensor:
        """Give the class of each row of (n, features); (n,)."""
        return (features @ self.weight.T + self.bias).argmax(dim=1)


def accuracy(
    task: str, digest: str, model: transformers.ResNetModel, _tokenizer: Any
) -> tuple[float, float]:
    """Measure the share of test images that a refitted head classifies right.

    ``digest`` is that of the prepared data. Returns the share and its standard error.
    """
    data = load_images(task, digest)
    with fresh_statistics(model, data.train_images):
        inputs = features(model, data.train_images)
        head = fit_head(inputs, data.train_labels, len(data.classes))
        found = head.classify(features(model, data.test_images))
    hits = (found == data.test_labels).double()
    share = hits.mean().item()
    return share, float(np.sqrt(share * (1 - share) / (len(hits) - 1)))


@functools.cache
def load_images(task: str, _digest: str) -> Images:
    """Load the images of a task, once for each digest."""
    path = DATA / f"{task}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; run: python resnet18.py prepare")
    with safe_open(path, framework="pt") as file:
        classes = tuple(json.loads(file.metadata()["classes"]))
    return Images(**load_file(path), classes=classes)


@contextmanager
def fresh_statistics(model: transformers.ResNetModel, images: Tensor) -> Iterator[None]:
    """Normalise by the statistics of these images meanwhile; batches count alike."""
    layers = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean
            layer.train()
        features(model, images)
        model.eval()
        yield
    finally:
        model.eval()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])


def fit_head(inputs: Tensor, labels: Tensor, n_classes: int) -> Head:
    """Fit a head by ridge regression on 0 and 1; inputs (n, features)."""
    targets = torch.nn.functional.one_hot(labels, n_classes).double()
    mean, share = inputs.mean(dim=0), targets.mean(dim=0)
    centred = inputs - mean
    gram = centred.T @ centred
    penalty = RIDGE * gram.diagonal().mean()
    gram += penalty * torch.eye(len(gram), dtype=gram.dtype)
    weight = torch.linalg.solve(gram, centred.T @ (targets - share)).T
    return Head(weight, share - weight @ mean)


@torch.no_grad()
def features(model: transformers.ResNetModel, images: Tensor) -> Tensor:
    """Compute what the head sees of images, bytes of (n, 3, h, w); (n, features)."""
    rows = [
        model(pixel_values=_pixels(batch, model)).pooler_output.flatten(1)
        for batch in images.split(BATCH)
    ]
    return torch.cat(rows).double().cpu()


def _pixels(images: Tensor, model: transformers.PreTrainedModel) -> Tensor:
    mean = torch.tensor(MEAN, device=model.device)[:, None, None]
    std = torch.tensor(STD, device=model.device)[:, None, None]
    pixels = (images.to(model.device).float() / 255 - mean) / std
    return pixels.to(model.dtype)


def _task(name: str) -> functools.partial[tuple[float, float]]:
    """Make a task whose definition changes when its data do."""
    path = DATA / f"{name}.safetensors"
    known = path.is_file()
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if known else "missing"
    return functools.partial(accuracy, name, digest)


cifar10 = _task("cifar10")
flowers102 = _task("flowers102")
gtsrb = _task("gtsrb")


@click.group()
def main() -> None:
    """Get ready what resnet18.yml merges and measures, and refit what it ships."""


@main.command()
@click.option("--train", default=5000, show_default=True, help="Images to fit to.")
@click.option("--test", default=2000, show_default=True, help="Images to measure.")
@click.option("--size", default=224, show_default=True, help="Pixels, both ways.")
def prepare(train: int, test: int, size: int) -> None:
    """Save the base model and the images below the working directory."""
    _save_headless(transformers.ResNetModel.from_pretrained(BASE), MODELS / "base")
    DATA.mkdir(exist_ok=True)
    for task, source in SOURCES.items():
        tensors = {}
        parts = {"train": (source.train, train), "test": (source.test, test)}
        for part, (split, items) in parts.items():
            rows = datasets.load_dataset(source.dataset, split=split)
            # Some datasets are sorted by class.
            rows = rows.shuffle(seed=0).select(range(min(items, len(rows))))
            images = [row[source.image] for row in rows]
            tensors[f"{part}_images"] = image_tensor(images, size)
            tensors[f"{part}_labels"] = torch.tensor(rows["label"])
        classes = {"classes": json.dumps(rows.features["label"].names)}
        save_file(tensors, DATA / f"{task}.safetensors", metadata=classes)
        click.echo(f"{task}: {len(tensors['train_labels'])} images to fit to")


@main.command()
@click.argument("task", type=click.Choice(list(SOURCES)))
@click.option("--epochs", default=5, show_default=True)
@click.option("--rate", default=1e-4, show_default=True, help="Of learning.")
@click.option("--device", default="cpu", show_default=True)
def fine_tune(task: str, epochs: int, rate: float, device: str) -> None:
    """Fine-tune the base model on TASK and save it without its head."""
    data = load_images(task, "now")
    images, labels = data.train_images, data.train_labels
    torch.manual_seed(0)
    model = _with_head(MODELS / "base", data.classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(images)).split(BATCH):
            logits = model(pixel_values=_pixels(images[batch], model)).logits
            loss = torch.nn.functional.cross_entropy(logits, labels[batch].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        click.echo(f"{task}: epoch {epoch + 1}, loss {total / len(images):.3f}")
    _save_headless(model.resnet, MODELS / task)


@main.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.argument("task", type=click.Choice(list(SOURCES)))
@click.argument("out", type=click.Path(path_type=Path))
def refit(folder: Path, task: str, out: Path) -> None:
    """Make the merge in FOLDER a classifier of TASK and save it as OUT."""
    data = load_images(task, "now")
    backbone = transformers.AutoModel.from_pretrained(folder)
    model = _with_head(folder, data.classes)
    with torch.no_grad(), fresh_statistics(backbone, data.train_images):
        inputs = features(backbone, data.train_images)
        head = fit_head(inputs, data.train_labels, len(data.classes))
        model.resnet.load_state_dict(backbone.state_dict())
        model.classifier[1].weight.copy_(head.weight)
        model.classifier[1].bias.copy_(head.bias)
    model.save_pretrained(out)
    share = measure_whole(model, data)
    click.echo(f"{out}: accuracy {share:.4f} on {len(data.test_labels)} test images")


@torch.no_grad()
def measure_whole(
    model: transformers.ResNetForImageClassification, data: Images
) -> float:
    """Measure the share of test images that a whole classifier classifies right."""
    model.eval()
    found = [
        model(pixel_values=_pixels(batch, model)).logits.argmax(dim=1).cpu()
        for batch in data.test_images.split(BATCH)
    ]
    return (torch.cat(found) == data.test_labels).double().mean().item()


def _with_head(
    folder: Path, classes: Sequence[str]
) -> transformers.ResNetForImageClassification:
    """Load a model without a head and give it an untrained one."""
    return transformers.ResNetForImageClassification.from_pretrained(
        folder,
        id2label=dict(enumerate(classes)),
        label2id={name: number for number, name in enumerate(classes)},
    )


def _save_headless(model: transformers.ResNetModel, folder: Path) -> None:
    headless = HeadlessResNet(model.config)
    headless.load_state_dict(model.state_dict())
    headless.save_pretrained(folder, save_original_format=False)


def image_tensor(images: Sequence[Image.Image], size: int) -> Tensor:
    """Resize and crop images to squares; bytes of (n, 3, size, size)."""
    fitted = [
        ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BICUBIC)
        for image in images
    ]
    stacked = torch.from_numpy(np.stack([np.asarray(image) for image in fitted]))
    return stacked.permute(0, 3, 1, 2).contiguous()


if __name__ == "__main__":
    main()
