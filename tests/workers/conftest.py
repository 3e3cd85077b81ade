"""A search of two coefficients and two texts, for workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nested_runs import write
from plain_runs import write_plain


@pytest.fixture
def config(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Give a configuration, which is in the working directory, too."""
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("hello world, one plus two\n" * 60)
    Path("two.txt").write_text("def return three\n" * 60)
    config = write_plain(family, [], evaluations=9, remeasure=2)
    del config["dtype"]
    config["map"] |= {
        "batch_size": 4,
        "tasks": {
            name: {"perplexity": {"file": f"{name}.txt"}, "block": 32}
            for name in ("one", "two")
        },
    }
    write(config)
    return config
