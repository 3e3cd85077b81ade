"""Tiny image models and images with structure, as the image recipes would find them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import processors

SIZE = 16
PATTERNS = {
    "striped": lambda rows, _: rows % 2 == 0,
    "dotted_grid": lambda rows, columns: (rows + columns) % 2 == 0,
    "plain": lambda rows, _: rows >= 0,
}
CLASSES = sorted(PATTERNS)


def write_images(folder: Path, seed: int, splits: dict[str, int]) -> Path:
    """Write a folder that datasets reads: SPLIT/CLASS/NUMBER.png, ``seed`` its colours.

    A class is a pattern in noise, so that it can be learned and not by colour alone.
    """
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((SIZE, SIZE))
    light, dark = rng.integers(120, 256, size=3), rng.integers(0, 120, size=3)
    for split, count in splits.items():
        for label in CLASSES:
            place = folder / split / label
            place.mkdir(parents=True)
            for number in range(count):
                mask = PATTERNS[label](rows, columns)[..., None]
                image = np.where(mask, light, dark) + rng.normal(0, 25, (SIZE, SIZE, 3))
                pixels = image.clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


def make_clip(folder: Path, tokenizer: transformers.PreTrainedTokenizerFast) -> Path:
    # As CLIP's own: a text is read off where it ends.
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4}
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    config = transformers.CLIPConfig(
        vision_config={**sizes, **heads, "image_size": SIZE, "patch_size": 4},
        text_config={**sizes, **heads, **ids, "vocab_size": len(tokenizer)},
        projection_dim=16,
    )
    transformers.CLIPModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def fine_tune_encoder(
    script: ModuleType, clip: Path, task: str, images: Path, folder: Path
) -> Path:
    """Save an encoder that knows a task, under the names that older files have."""
    full = transformers.CLIPModel.from_pretrained(clip)
    tokenizer = transformers.AutoTokenizer.from_pretrained(clip)
    described = [
        script.SOURCES[task].description.format(name.replace("_", " "))
        for name in CLASSES
    ]
    classes = script.embed(full, tokenizer, described)
    pixels, labels = _training_set(images)
    encoder = transformers.CLIPVisionModel.from_pretrained(clip)
    projection = full.visual_projection.weight.detach()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=3e-3)
    for _ in range(20):
        pooled = encoder(pixel_values=pixels).pooler_output @ projection.T
        logits = 20 * torch.nn.functional.normalize(pooled, dim=1) @ classes.T
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
    encoder.save_pretrained(folder)
    weights = folder / "model.safetensors"
    tensors = {
        f"vision_model.{name.removeprefix('vision_model.')}": tensor
        for name, tensor in load_file(weights).items()
    }
    save_file(tensors, weights, metadata={"format": "pt"})
    return folder


def _training_set(images: Path) -> tuple[torch.Tensor, torch.Tensor]:
    files = sorted(images.glob("test/*/*.png"))
    pixels = torch.from_numpy(np.stack([np.asarray(Image.open(f)) for f in files]))
    labels = [CLASSES.index(f.parent.name) for f in files]
    normal = (pixels.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.27
    return normal, torch.tensor(labels)


def make_resnet(folder: Path) -> Path:
    """Save a classifier with a head of its own, as the base on the Hub has one."""
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        num_labels=7,
    )
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    return folder
