"""A task of lm-eval that has a model write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import yaml


def write_ask(texts: Iterable[str], *, tokens: int = 8) -> None:
    """Write ``ask.yaml`` and its documents: go on with texts until an ``e``."""
    rows = Path("ask.jsonl").absolute()
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    content = {
        "task": "ask",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(rows)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "a",
        "generation_kwargs": {"until": ["e"], "max_gen_toks": tokens},
        "metric_list": [
            {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
        ],
    }
    Path("ask.yaml").write_text(yaml.safe_dump(content))
