"""Every test works in a folder of its own, and so does what a module makes once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Work in a new folder while what a module shares is made."""
    folder = tmp_path_factory.mktemp("module")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture
def place(searched: Path, tmp_path: Path) -> Path:
    """Copy the finished search of a module, to change it."""
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
