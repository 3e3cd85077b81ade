"""A base model of any size with random weights, and fine-tunes of it; with texts.

For what depends on sizes and not on what a model has learnt: time, memory, bits. Models
are Llamas whose words are numbers, a text is drawn from the words of its task.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch
import transformers
from laboratory.family import write_lm_eval_task


@dataclass(frozen=True)
class Size:
    """The shape of a Llama."""

    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    tied: bool = False  # embeddings


SIZES = {
    "tiny": Size(64, 128, 2, 4, 1, 512),
    "10m": Size(256, 768, 8, 4, 1, 8192),
    "30m": Size(512, 1408, 8, 8, 2, 8192),
    "100m": Size(768, 2048, 12, 12, 3, 8192),
    "135m": Size(576, 1536, 30, 9, 3, 49152, tied=True),
    "1b": Size(2048, 8192, 16, 32, 8, 32000, tied=True),
}
NAMES = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def build_family(folder: Path, size: Size, n_models: int, n_words: int) -> None:
    """Save a base and fine-tunes: the base and noise; with a text for each of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(n_models):
        write_text(folder / f"{NAMES[index]}.txt", size.vocabulary, n_words, index)
    names = ("base", *NAMES[:n_models])
    write_models(folder, names, random_model(size), tokenizer(size.vocabulary))


def write_models(
    folder: Path,
    names: Sequence[str],
    model: transformers.PreTrainedModel,
    tokenizer: transformers.PreTrainedTokenizerFast,
) -> None:
    """Save a model by the first name, and by the others what is near it."""
    base = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for index, name in enumerate(names):
        if index:
            torch.manual_seed(index)
            near = {k: t + torch.randn_like(t) * 1e-3 for k, t in base.items()}
            model.load_state_dict(near)
        model.save_pretrained(folder / name, max_shard_size="4GB")
        tokenizer.save_pretrained(folder / name)


def random_model(size: Size) -> transformers.PreTrainedModel:
    """Build a Llama in bfloat16."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_heads,
        vocab_size=size.vocabulary,
        max_position_embeddings=2048,
        tie_word_embeddings=size.tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
        dtype=torch.bfloat16,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.eval()


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
    return write_choice_task(questions)


def write_choice_task(questions: Path) -> Path:
    """Write a task beside its questions, by their name."""
    return write_lm_eval_task(
        questions,
        output_type="multiple_choice",
        doc_to_text="{{prompt}}",
        doc_to_choice="{{choices}}",
        doc_to_target="{{answer}}",
        target_delimiter="",
        metric_list=[{"metric": "acc"}],  # lm-eval knows its mean and direction
    )
