"""Tasks of a family of ResNets, whose heads are fitted anew for each merge.

A family of the kind ``resnet`` has a copy of this file and of ``recipes/resnet18.py``,
which says how statistics are taken and heads fitted, with its images beside them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from resnet18 import features, fit_head, fresh_statistics
from safetensors.torch import load_file
from torch import Tensor

HERE = Path(__file__).parent
IMAGES = HERE / "images"


def right(
    task: str,
    digest: str,
    model: Any,
    _tokenizer: Any,
    documents: Sequence[int] | None = None,
) -> list[float]:
    """Say of each held-out image whether a refitted head classifies it right."""
    data = _load(task, digest)
    rows = torch.arange(len(data["labels"])) if documents is None else documents
    classes = int(data["train_labels"].max()) + 1
    with fresh_statistics(model, data["train_pixels"]):
        inputs = features(model, data["train_pixels"])
        head = fit_head(inputs, data["train_labels"], classes)
        found = head.classify(features(model, data["pixels"][rows]))
    return (found == data["labels"][rows]).double().tolist()


@functools.cache
def _load(task: str, _digest: str) -> dict[str, Tensor]:
    return load_file(IMAGES / f"{task}.safetensors")


# A task changes when its images do, or how it is measured.
for _file in sorted(IMAGES.glob("*.safetensors")):
    _bytes = _file.read_bytes() + (HERE / "resnet18.py").read_bytes()
    _digest = hashlib.sha256(_bytes).hexdigest()
    globals()[_file.stem] = functools.partial(right, _file.stem, _digest)
