"""The finished search that a module makes once, to be changed by its tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def place(searched: Path, tmp_path: Path) -> Path:
    """Copy the finished search of a module, to change it."""
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    return tmp_path
