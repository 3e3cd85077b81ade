"""Tasks of a family of image encoders: how many held-out images are classified right.

A family of the kind ``vision`` has a copy of this file, with its images beside it, a
file per task. The class of an image is the one whose head is nearest; heads are those
that the base was trained with, and no merge changes them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

IMAGES = Path(__file__).parent / "images"
BATCH = 100


def right(
    task: str,
    digest: str,
    model: Any,
    _tokenizer: Any,
    documents: Sequence[int] | None = None,
) -> list[float]:
    """Say of each image whether it is classified right, 1 or 0."""
    data = _load(task, digest)
    rows = torch.arange(len(data["labels"])) if documents is None else documents
    pixels, labels = data["pixels"][rows], data["labels"][rows]
    found = [
        (model(pixel_values=batch).pooler_output.float() @ data["head"].T).argmax(dim=1)
        for batch in pixels.to(model.dtype).split(BATCH)
    ]
    return (torch.cat(found) == labels).double().tolist()


@functools.cache
def _load(task: str, _digest: str) -> dict[str, Tensor]:
    """Load images as the model sees them, and a head of rows of length 1."""
    data = load_file(IMAGES / f"{task}.safetensors")
    mean, std = data["mean"][:, None, None], data["std"][:, None, None]
    head = torch.nn.functional.normalize(data["head"], dim=1)
    pixels = (data["pixels"].float() / 255 - mean) / std
    return {"pixels": pixels, "labels": data["labels"], "head": head}


# A task changes when its images do.
for _file in sorted(IMAGES.glob("*.safetensors")):
    _digest = hashlib.sha256(_file.read_bytes()).hexdigest()
    globals()[_file.stem] = functools.partial(right, _file.stem, _digest)
