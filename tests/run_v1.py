"""A run folder of version 1 and all it needs, copied for a test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import pytest

DATA = Path(__file__).parent / "data" / "run_v1"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Copy a finished search."""
    return Path(shutil.copytree(DATA / "run", tmp_path / "run"))


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of the folder that holds the run, ``run``, and all it needs.

    Without a key that left, as who goes on with the run is told to remove it.
    """
    folder = shutil.copytree(DATA, tmp_path / "moved")
    monkeypatch.chdir(folder)
    for config in (Path("config.yml"), Path("run/config.yml")):
        config.write_text(config.read_text().replace("gradients: true, ", ""))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))
    return folder


@pytest.fixture
def at_home(moved: Path) -> Path:
    """Say in the manifest that the run was made there; returns the run."""
    path = Path("run/manifest.json")
    manifest = {**json.loads(path.read_text()), "directory": str(moved)}
    path.write_text(json.dumps(manifest))
    return path.parent
