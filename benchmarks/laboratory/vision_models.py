"""How large the image models are, and how long they train."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from vision_drawing import SIDE

from mergekit_map.demo.training import Schedule

RECIPE = Path(__file__).parents[2] / "recipes" / "resnet18.py"
sys.path.append(str(RECIPE.parent))

import resnet18  # noqa: E402

_SEED = 0
_PATCH = 8


@dataclass(frozen=True)
class Size:
    """Everything that decides how large a family is, and how long it trains."""

    features: int  # what a head sees
    layers: int  # of each stage, in a ResNet
    base: Schedule
    fine_tune: Schedule
    images: int  # of each task, to train
    held_out: int = 500
    refit: int = 500  # images that a head is fitted to


def sizes_of(family: str) -> Mapping[str, Size]:
    """Give the sizes of a family by name."""
    return _ENCODERS if family == "vision" else _RESNETS


def new_encoder(size: Size) -> transformers.PreTrainedModel:
    """Draw an untrained image encoder of CLIP's."""
    config = transformers.CLIPVisionConfig(
        hidden_size=size.features,
        intermediate_size=4 * size.features,
        num_hidden_layers=size.layers,
        num_attention_heads=max(2, size.features // 64),
        image_size=SIDE,
        patch_size=_PATCH,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        return transformers.CLIPVisionModel(config)


def new_resnet(size: Size) -> transformers.PreTrainedModel:
    """Draw an untrained ResNet: four stages of basic layers, as ResNet-18 has."""
    widths = [size.features // 8 * factor for factor in (1, 2, 4, 8)]
    config = transformers.ResNetConfig(
        embedding_size=widths[0],
        hidden_sizes=widths,
        depths=[size.layers] * 4,
        layer_type="basic",
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        return resnet18.HeadlessResNet(config)


_ENCODERS = {
    "demo": Size(
        64,
        2,
        Schedule(400, 4e-3, 0.02, batch=96),
        Schedule(60, 1e-3, 4e-3, batch=48),
        images=2500,
    ),
    "5m": Size(
        320,
        4,
        Schedule(400, 2e-3, 0.02, batch=128),
        Schedule(30, 3e-4, 2e-3, batch=64),
        images=4000,
    ),
    "20m": Size(
        512,
        6,
        Schedule(800, 1.5e-3, 0.02, batch=128),
        Schedule(30, 2e-4, 2e-3, batch=64),
        images=8000,
    ),
}
_RESNETS = {
    "demo": Size(
        128,
        1,
        Schedule(200, 4e-3, 0, batch=60),
        Schedule(80, 1.5e-3, 0, batch=60),
        images=1500,
        refit=1000,
    ),
    "5m": Size(
        352,
        2,
        Schedule(300, 2e-3, 0, batch=120),
        Schedule(40, 3e-4, 0, batch=60),
        images=4000,
    ),
    "20m": Size(
        688,
        2,
        Schedule(600, 2e-3, 0, batch=120),
        Schedule(40, 3e-4, 0, batch=60),
        images=8000,
    ),
}
