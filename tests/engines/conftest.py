"""Small models that vLLM takes, and a task that has them write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml
from task_files import write_ask

SIZE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "initializer_range": 0.3,  # far from uniform, so that answers differ
}
EXPERTS = {
    "moe_intermediate_size": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "head_dim": 32,
}
KINDS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, False),
    "tied qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, True),
    "experts": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM, False),
}


@pytest.fixture(scope="session")
def parents(
    tmp_path_factory: pytest.TempPathFactory, make_model: Callable[..., Path]
) -> Callable[[str], Path]:
    """Build a base and two fine-tunes of a kind, in a folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(make_model("base", 0))
    built: dict[str, Path] = {}

    def build(kind: str) -> Path:
        if kind not in built:
            built[kind] = tmp_path_factory.mktemp(kind.replace(" ", "-"))
            _build(kind, tokenizer, built[kind])
        return built[kind]

    return build


def _build(kind: str, tokenizer: Any, folder: Path) -> None:
    config, model_class, tied = KINDS[kind]
    for seed, name in enumerate(("base", "a", "b")):
        torch.manual_seed(0)
        size = SIZE | (EXPERTS if kind == "experts" else {})
        model = model_class(
            config(**size, vocab_size=len(tokenizer), tie_word_embeddings=tied)
        )
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters() if seed else ():
                parameter.add_(torch.randn_like(parameter) * 0.05)
        model.to(torch.bfloat16).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


@pytest.fixture
def write_config(
    parents: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Write a configuration whose task ``ask`` has the merge write, and its files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "cache"))
    texts = (f"hello world {i} one plus two " * (1 + i % 3) for i in range(12))
    write_ask(texts, tokens=24)
    Path("text.txt").write_text("hello world, one plus two\n" * 40)

    def write(kind: str, method: str = "task_arithmetic", **block: Any) -> Path:
        parameters = {"density": 0.5} if method == "ties" else {}
        folder = parents(kind)
        config = {
            "merge_method": method,
            "base_model": str(folder / "base"),
            "dtype": "bfloat16",
            "models": [
                {"model": str(folder / name), "parameters": parameters} for name in "ab"
            ],
            "map": {
                "tasks": {
                    "ask": {"lm_eval": "ask.yaml", "metric": "answer_tokens"},
                    "text": {"perplexity": "text.txt", "max_tokens": 300},
                },
                "search": {"evaluations": 4, "remeasure": 1, "refine": False},
                **block,
            },
        }
        path = Path(f"{method}.yml")
        path.write_text(yaml.safe_dump(config))
        return path

    return write
