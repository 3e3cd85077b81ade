"""A base model of any size with random weights, and fine-tunes of it; with texts.

For what depends on sizes and not on what a model has learnt: time, memory, bits. Models
are Llamas whose words are numbers, a text is drawn from the words of its task.
"""

from __future__ import annotations

import gc
import json
import random
from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch
import transformers

from mergekit_map.demo.tasks import write_choice_task


@dataclass(frozen=True)
class Size:
    """The shape of a Llama."""

    hidden: int
    inner: int
    layers: int
    heads: int
    vocabulary: int
    positions: int = 2048


SIZES = {
    "tiny": Size(64, 128, 2, 4, 512),
    "10m": Size(256, 768, 8, 4, 8192),
    "30m": Size(512, 1408, 8, 8, 8192),
    "100m": Size(768, 2048, 12, 12, 8192),
    "300m": Size(1024, 2816, 18, 16, 32000),
    "1b": Size(2048, 8192, 16, 32, 32000),
    "8b": Size(4096, 14336, 32, 32, 128256),
}
NAMES = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def build_family(
    folder: Path,
    size: Size,
    n_models: int = 2,
    *,
    dtype: torch.dtype = torch.bfloat16,
    n_words: int = 2048,
    device: str = "cpu",
    steps: int = 0,
    kind: str = "llama",
) -> int:
    """Save a base and fine-tunes, with a text of ``n_words`` for each of two tasks.

    Fine-tunes are the base and noise or, with ``steps``, so many steps down the loss of
    the text of their task, which gives a search something to trade off.

    Returns:
        The number of parameters of one model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(n_models):
        write_text(folder / f"{NAMES[index]}.txt", size.vocabulary, n_words, index)
    model = random_model(size, dtype, device, kind)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    for index, name in enumerate(("base", *NAMES[:n_models])):
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.copy_(start[key])
        if name != "base" and steps:
            _descend(model, read_text(folder / f"{name}.txt"), steps)
        elif name != "base":
            _disturb(model, index)
        model.save_pretrained(folder / name, max_shard_size="4GB")
        tokenizer(size.vocabulary).save_pretrained(folder / name)
    count = sum(p.numel() for p in start.values())
    del model, start
    gc.collect()
    return count


def random_model(
    size: Size, dtype: torch.dtype, device: str = "cpu", kind: str = "llama"
) -> transformers.PreTrainedModel:
    """Build it on its device, in its dtype: a ``llama``, a ``tied`` one, a ``moe``."""
    torch.manual_seed(0)
    shape = {
        "hidden_size": size.hidden,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": max(size.heads // 4, 1),
        "vocab_size": size.vocabulary,
        "max_position_embeddings": size.positions,
        "tie_word_embeddings": kind == "tied",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        "dtype": dtype,
    }
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            if kind != "moe":
                config = transformers.LlamaConfig(**shape)
                return transformers.LlamaForCausalLM(config).eval()
            experts = {"num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
            width = {"moe_intermediate_size": size.inner // 2}
            sparse = transformers.Qwen3MoeConfig(**shape, **experts, **width)
            return transformers.Qwen3MoeForCausalLM(sparse).eval()
    finally:
        torch.set_default_dtype(before)


def tokenizer(vocabulary: int) -> transformers.PreTrainedTokenizerFast:
    """Make one whose words are ``w0``, ``w1``, and so on, apart by spaces."""
    words = {f"w{i}": i for i in range(vocabulary)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="w0", bos_token="w1", eos_token="w2"
    )


def write_text(file: Path, vocabulary: int, n_words: int, seed: int) -> None:
    """Write words of which some are many times as frequent as others, by the seed."""
    rng = random.Random(seed)
    words = list(range(3, vocabulary))
    rng.shuffle(words)
    chances = [1 / (rank + 5) for rank in range(len(words))]
    drawn = rng.choices(words, chances, k=n_words)
    file.write_text(" ".join(f"w{i}" for i in drawn))


def read_text(file: Path) -> torch.Tensor:
    """Read the words of a text as tokens, one row; (1, n)."""
    return torch.tensor([[int(word[1:]) for word in file.read_text().split()]])


@torch.no_grad()
def _disturb(model: transformers.PreTrainedModel, seed: int) -> None:
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 1e-3)


def _descend(model: transformers.PreTrainedModel, text: torch.Tensor, n: int) -> None:
    """Go down the loss of the first words of a text, by steps of equal size."""
    row = text[:, :512].to(model.device)
    for _ in range(n):
        model.zero_grad()
        model(input_ids=row, labels=row).loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(2e-3 * parameter.grad.sign())
    model.zero_grad()


def write_generations(folder: Path, name: str, count: int, n_tokens: int) -> Path:
    """Write an lm-eval task of prompts that are to be gone on with for some tokens."""
    words = (folder / f"{name}.txt").read_text().split()
    rng = random.Random(name)
    prompts = folder / f"{name}_answers.jsonl"
    with prompts.open("w") as lines:
        for _ in range(count):
            start = rng.randrange(len(words) - 70)
            asked = {"prompt": " ".join(words[start : start + 64]), "answer": "w3"}
            lines.write(json.dumps(asked) + "\n")
    task = folder / f"{name}_answers.yaml"
    content = {
        "task": task.stem,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(prompts)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["w2 w2"], "max_gen_toks": n_tokens},
        "metric_list": [{"metric": "exact_match"}],
        "metadata": {"version": 1.0},
    }
    task.write_text(json.dumps(content))  # JSON is YAML
    return task


def write_choices(folder: Path, name: str, count: int) -> Path:
    """Write an lm-eval task of questions with four answers, from the text of a task."""
    words = (folder / f"{name}.txt").read_text().split()
    rng = random.Random(name)
    questions = folder / f"{name}_choice.jsonl"
    with questions.open("w") as lines:
        for _ in range(count):
            start = rng.randrange(len(words) - 40)
            answers = [" " + " ".join(rng.choices(words, k=4)) for _ in range(4)]
            asked = {"prompt": " ".join(words[start : start + 32]), "answer": 0}
            lines.write(json.dumps({**asked, "choices": answers}) + "\n")
    task = folder / f"{name}_choice.yaml"
    write_choice_task(task, questions)
    return task
