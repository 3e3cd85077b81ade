"""Small models that vLLM takes, and a task that has them write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from task_files import write_ask

SIZE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,  # far from uniform, so that answers differ
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "tied-qwen2": {"kind": "Qwen2", "tied": True},
    "experts": {"kind": "Qwen3Moe", "head_dim": 32, **EXPERTS},
}


@pytest.fixture
def write_config(
    make_half: Callable[..., dict[str, Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Path]:
    """Write a configuration whose task ``ask`` has the merge write, and its files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "cache"))
    texts = (f"hello world {i} one plus two " * (1 + i % 3) for i in range(12))
    write_ask(texts, tokens=24)
    Path("text.txt").write_text("hello world, one plus two\n" * 40)

    def write(kind: str, method: str = "task_arithmetic", **block: Any) -> Path:
        parameters = {"density": 0.5} if method == "ties" else {}
        family = make_half(f"vllm-{kind}", noise=0.05, **SIZE, **KINDS[kind])
        config = {
            "merge_method": method,
            "base_model": str(family["base"]),
            "dtype": "bfloat16",
            "models": [
                {"model": str(family[name]), "parameters": parameters} for name in "ab"
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
