"""A base model to inspect, with a text to measure in the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def base(family: dict[str, Path], tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("hello world, one plus two\n" * 400)
    return family["base"]
