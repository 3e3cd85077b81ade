"""A search of two coefficients and two texts, for workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def config(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Give a configuration, which is in the working directory, too."""
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("hello world, one plus two\n" * 60)
    Path("two.txt").write_text("def return three\n" * 60)
    texts = {
        name: {"perplexity": {"file": f"{name}.txt"}, "block": 32}
        for name in ("one", "two")
    }
    config = {
        "merge_method": "task_arithmetic",
        "base_model": str(family["base"]),
        "models": [{"model": str(family[name])} for name in "ab"],
        "map": {
            "batch_size": 4,
            "tasks": texts,
            "search": {"evaluations": 9, "remeasure": 2},
        },
    }
    Path("config.yml").write_text(yaml.safe_dump(config))
    return config
