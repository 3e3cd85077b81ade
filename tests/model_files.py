"""Models on disk that differ from others in one thing, and adapters for them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from runs import change_json
from safetensors.torch import load_file, save_file

Edit = Callable[[Path], None]


def edit_json(name: str, **fields: Any) -> Edit:
    """Set entries of a JSON file; "gone" removes them."""

    def edit(model: Path) -> None:
        path = model / name
        content = {**json.loads(path.read_text()), **fields}
        path.write_text(json.dumps({k: v for k, v in content.items() if v != "gone"}))

    return edit


def edit_config(**fields: Any) -> Edit:
    return edit_json("config.json", **fields)


def edit_tokenizer(change: Callable[[dict[str, Any]], object]) -> Edit:
    return lambda model: change_json(model / "tokenizer.json", change)


def swap_tokens(content: dict[str, Any]) -> None:
    ids = content["model"]["vocab"]
    ids["A"], ids["B"] = ids["B"], ids["A"]


def edit_tensors(
    change: Callable[[dict[str, torch.Tensor]], object], file: str = "model.safetensors"
) -> Edit:
    def edit(model: Path) -> None:
        tensors = load_file(model / file)
        change(tensors)
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, model / file, metadata={"format": "pt"})

    return edit


def noise(tensors: dict[str, torch.Tensor], scale: float, seed: int) -> None:
    """Add to every tensor what a short training would."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in tensors.items():
        extra = torch.randn(tensor.shape, generator=generator) * scale
        tensors[name] = (tensor.float() + extra).to(tensor.dtype)


def tuned(base: Path, folder: Path, seed: int) -> Path:
    """Copy a model and change its weights a little."""
    shutil.copytree(base, folder)
    edit_tensors(lambda tensors: noise(tensors, 0.0005, seed))(folder)
    return folder


def make_adapter(base: Path, folder: Path, seed: int, **settings: Any) -> Path:
    """Write a LoRA adapter with random matrices for a model."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    given = {"r": 4, "target_modules": ["q_proj", "up_proj"], **settings}
    torch.manual_seed(seed)
    lora = peft.LoraConfig(init_lora_weights=False, **given)
    peft.get_peft_model(model, lora).save_pretrained(folder)
    return folder
