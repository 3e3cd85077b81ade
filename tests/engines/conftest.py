"""Small models that vLLM takes, and a task that has them write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import runs
from runs import write_plain
from task_files import write_ask

SIZE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128}
SIZE |= {"num_attention_heads": 2, "num_key_value_heads": 1}
SIZE["max_position_embeddings"] = 256
SIZE["initializer_range"] = 0.3  # far from uniform, so that answers differ
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "tied-qwen2": {"kind": "Qwen2", "tied": True},
    "experts": {"kind": "Qwen3Moe", "head_dim": 32, **EXPERTS},
}


@pytest.fixture
def write_config(
    make_half: Callable[..., dict[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Write a configuration whose task ``ask`` has the merge write, and its files."""
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(Path("cache").resolve()))
    texts = (f"hello world {i} one plus two " * (1 + i % 3) for i in range(12))
    write_ask(texts, tokens=24)
    Path("text.txt").write_text("hello world, one plus two\n" * 40)

    def write(kind: str, method: str = "task_arithmetic", **block: Any) -> Path:
        family = make_half(f"vllm-{kind}", noise=0.05, **SIZE, **KINDS[kind])
        tasks = {
            "ask": {"lm_eval": "ask.yaml", "metric": "answer_tokens"},
            "text": {"perplexity": "text.txt", "max_tokens": 300},
        }
        density = 0.5 if method == "ties" else None
        search = {"evaluations": 4, "refine": False}
        config = write_plain(family, tasks, method=method, density=density, **search)
        config["map"] |= block
        runs.write({**config, "dtype": "bfloat16"})
        return Path("config.yml")

    return write
