"""A search of two coefficients and two texts, for workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import write, write_plain, write_texts


@pytest.fixture
def config(family: dict[str, Path]) -> dict[str, Any]:
    """Give a configuration, which is in the working directory, too."""
    texts = write_texts("one", "two", block=32)
    config = write_plain(family, texts, evaluations=8, remeasure=1)
    config["map"]["batch_size"] = 4
    write(config)
    return config
