"""A family of models that costs milliseconds, to be damaged."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tiny_tokenizer import make_tokenizer

TEXT = "one plus two return three hello world def " * 40

CONFIG = """\
merge_method: task_arithmetic
base_model: base
models:
  - model: tuned
dtype: float32
map:
  search: {evaluations: 4, remeasure: 0}
  tasks:
    text: {perplexity: text.txt, max_tokens: 64}
"""


@functools.cache
def family() -> Path:
    """Make a folder with a base model, a fine-tune, an adapter and a text, once."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    torch.manual_seed(0)
    tokenizer = make_tokenizer([])
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config)
    for name in ("base", "tuned"):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.002)
    _write_adapter(folder / "adapter")
    (folder / "text.txt").write_text(TEXT)
    (folder / "merge.yml").write_text(CONFIG)
    adapted = CONFIG.replace("tuned", "base+adapter")
    (folder / "adapted.yml").write_text(adapted)
    return folder


def copied(folder: Path) -> Path:
    """Copy the family into a folder."""
    shutil.copytree(family(), folder, dirs_exist_ok=True)
    return folder


def read_tensors(path: Path) -> tuple[dict[str, Any], bytes]:
    """Take a file of tensors apart: its header, and the bytes behind it."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_tensors(path: Path, header: Any, data: bytes) -> None:
    """Write a file of tensors, whatever its header says."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def _write_adapter(folder: Path) -> None:
    folder.mkdir()
    tensors = {}
    for layer in range(2):
        for module, wide in (("q_proj", 32), ("v_proj", 16)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(4, 32) * 0.01
            tensors[f"{name}.lora_B.weight"] = torch.randn(wide, 4) * 0.01
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "base",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
