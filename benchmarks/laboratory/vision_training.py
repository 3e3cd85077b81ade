"""Train image encoders, with a head for each task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import click
import numpy as np
import torch
import transformers
from torch import Tensor
from vision_images import SOURCES, Images, generator

from mergekit_map.demo.training import Muon, Schedule, one_thread

# Of the recipes for images, for red, green and blue: CLIP's and ImageNet's are alike.
MEAN, STD = (0.48, 0.46, 0.41), (0.27, 0.26, 0.28)

_WARMUP_SHARE = 0.05
_SHARPNESS = 12.0  # of the softmax of cosines

Heads = dict[str, Tensor]  # (classes, features), by task; the nearest one is the class


def new_heads(tasks: Mapping[str, Images], features: int, length: float = 1.0) -> Heads:
    """Draw a head for each task; the shorter, the faster it learns."""
    heads = {}
    for task in tasks:
        shape = (len(SOURCES[task].classes), features)
        drawn = generator(f"head of {task}").standard_normal(shape, np.float32)
        heads[task] = length * torch.from_numpy(drawn)
    return heads


def train(
    name: str,
    model: transformers.PreTrainedModel,
    tasks: Mapping[str, Images],
    heads: Heads,
    schedule: Schedule,
    *,
    train_heads: bool,
) -> None:
    """Train a model in place on all tasks alike, and their heads if asked."""
    rng = generator(f"batches of {name}")
    others = list(heads.values()) if train_heads else []
    for head in others:
        head.requires_grad_()
    step = _optimizer(model, others, schedule)
    each = schedule.batch // len(tasks)
    model.train()
    with one_thread():
        for number in range(schedule.steps):
            loss = _loss(rng, model, tasks, heads, each)
            loss.backward()
            step(_warmup_cosine(number, schedule.steps))
            if number % 10 == 9:
                click.echo(f"{name} {number + 1}/{schedule.steps}: {loss:.3f}")
    model.eval()
    for head in others:
        head.requires_grad_(requires_grad=False)


def pixel_values(pixels: Tensor) -> Tensor:
    """Bring bytes of (n, 3, h, w) to what a model sees."""
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return (pixels.float() / 255 - mean) / std


def _loss(
    rng: np.random.Generator,
    model: transformers.PreTrainedModel,
    tasks: Mapping[str, Images],
    heads: Heads,
    each: int,
) -> Tensor:
    """Draw images of all tasks, encode them at once, and classify each by its task."""
    drawn = {
        task: torch.from_numpy(rng.integers(len(images.labels), size=each))
        for task, images in tasks.items()
    }
    pixels = torch.cat([tasks[task].pixels[rows] for task, rows in drawn.items()])
    pooled = model(pixel_values=pixel_values(pixels)).pooler_output.flatten(1)
    features = torch.nn.functional.normalize(pooled, dim=1).split(each)
    losses = []
    for (task, rows), own in zip(drawn.items(), features, strict=True):
        head = torch.nn.functional.normalize(heads[task], dim=1)
        logits = _SHARPNESS * own @ head.T
        labels = tasks[task].labels[rows]
        losses.append(torch.nn.functional.cross_entropy(logits, labels))
    return torch.stack(losses).mean()


def _optimizer(
    model: transformers.PreTrainedModel, heads: list[Tensor], schedule: Schedule
) -> Callable[[float], None]:
    """Give a function that takes a step at a share of the learning rates."""
    matrices = [
        weight
        for name, weight in model.named_parameters()
        if weight.ndim == 2 and ".layers." in name and "embed" not in name
    ]
    inner = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in inner]
    others += heads
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.01)

    def step(share: float) -> None:
        torch.nn.utils.clip_grad_norm_([*matrices, *others], 1.0)
        adam.param_groups[0]["lr"] = share * schedule.learning_rate
        adam.step()
        muon.step(share * schedule.matrix_learning_rate)
        for weight in (*matrices, *others):
            weight.grad = None

    return step


def _warmup_cosine(step: int, steps: int) -> float:
    warmup = max(1, round(_WARMUP_SHARE * steps))
    decay = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / warmup) * decay
