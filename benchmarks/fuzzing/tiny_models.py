"""Families of models that cost milliseconds, to be searched and damaged."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from attack import Limits, command, held, refused
from peft import LoraConfig, get_peft_model
from random_family import write_choice_task, write_models
from tiny_tokenizer import make_tokenizer

TEXT = "one plus two return three hello world def " * 40

CONFIG = """\
merge_method: task_arithmetic
base_model: base
models:
  - model: a
dtype: float32
map:
  search: {evaluations: 4, remeasure: 0}
  tasks:
    text: {perplexity: text.txt, max_tokens: 64}
"""


def scratch(prefix: str) -> Path:
    """Make a folder for as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _model(tokenizer: transformers.PreTrainedTokenizerFast) -> Any:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    more = {"vocab_size": len(tokenizer), "max_position_embeddings": 128}
    config = transformers.LlamaConfig(**size, **heads, **ids, **more)
    return transformers.LlamaForCausalLM(config)


@functools.cache
def family() -> Path:
    """Make a folder with a base model, fine-tunes, an adapter and tasks, once."""
    folder = scratch("tiny-models-")
    tokenizer = make_tokenizer([])
    write_models(folder, ("base", "a", "b"), _model(tokenizer), tokenizer)
    _write_adapter(folder / "adapter", folder / "base")
    (folder / "text.txt").write_text(TEXT)
    (folder / "more.txt").write_text(" ".join(reversed(TEXT.split())))
    question = {"prompt": "hello", "choices": ["a", "b"], "answer": 0}
    (folder / "questions.jsonl").write_text(f"{json.dumps(question)}\n" * 4)
    write_choice_task(folder / "questions.jsonl")
    (folder / "merge.yml").write_text(CONFIG)
    adapted = CONFIG.replace("model: a", "model: base+adapter")
    (folder / "adapted.yml").write_text(adapted)
    return folder


def searched(
    folder: Path,
    config: str,
    words: Sequence[str],
    *,
    harmless: bool,
    seconds: float = 30,
    megabytes: float = 1000,
) -> tuple[list[str], int]:
    """Look at a family and search it: what is wrong, and how the search ended.

    What is not ``harmless`` is refused before anything is measured, by ``words``.
    """
    problems, code = [], 0
    judge = held if harmless else refused
    for name in ("inspect", "search"):
        run = ["run"] if name == "search" else []
        outcome = command([name, config, *run], folder, Limits(seconds))
        if name == "inspect":  # what is wrong stands in the table, on standard output
            errors = [line for line in outcome.said.splitlines() if "error" in line]
            outcome = replace(outcome, err="\n".join(errors))
        if problem := judge(outcome, *(words if run else ()), seconds=seconds):
            problems.append(f"{name}: {problem}")
        if outcome.megabytes > megabytes:
            problems.append(f"{name} took {outcome.megabytes:.0f} MB")
        code = outcome.code
    if not harmless and (folder / "run/evaluations.jsonl").exists():
        problems.append("it was measured before it was refused")
    return problems, code


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


def _write_adapter(folder: Path, base: Path) -> None:
    model = transformers.LlamaForCausalLM.from_pretrained(base)
    settings = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    adapted = get_peft_model(model, settings)
    adapted.peft_config["default"].base_model_name_or_path = "base"
    adapted.save_pretrained(folder)
