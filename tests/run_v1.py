"""A run folder of version 1 and all it needs, copied for a test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from mergekit_map.results.finished import read_finished
from mergekit_map.results.records import write_record
from mergekit_map.results.surrogate_file import SurrogateRecord, Surrogates
from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link

DATA = Path(__file__).parent / "data" / "run_v1"


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of the folder that holds the run, ``run``, and all it needs.

    Without a key that left, as who goes on with the run is told to remove it.
    """
    folder = shutil.copytree(DATA, tmp_path / "moved")
    monkeypatch.chdir(folder)
    for config in (Path("config.yml"), Path("run/config.yml")):
        config.write_text(config.read_text().replace("gradients: true, ", ""))
    cache = str(folder / "hub")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", cache)
    # mergekit asks the Hub for a list of files even where the cache has them all.
    files = ["model.safetensors"]
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda *_, **__: files)
    return folder


@pytest.fixture
def at_home(moved: Path) -> str:
    """Say in the manifest that the run was made there; returns where it was made."""
    manifest = json.loads(Path("run/manifest.json").read_text())
    former, manifest["directory"] = manifest["directory"], str(moved)
    Path("run/manifest.json").write_text(json.dumps(manifest))
    return str(former)


@pytest.fixture(scope="session")
def fitted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the run with surrogates; those of version 1 are not read."""
    run = shutil.copytree(DATA / "run", tmp_path_factory.mktemp("fitted") / "run")
    found = read_finished(run)
    front, tasks = found.front, {}
    for task, metric in front.metrics.items():
        known = [e for e in found.evaluations if e.task == task and not e.failed]
        X = np.array([[e.coefficients[n] for n in front.coefficients] for e in known])
        y = np.array([e.value for e in known])
        link = Link(*metric.bounds)
        fitted = fit_surrogate(
            X, y, stderr=None, link=link, bounds=found.bounds, kind="auto"
        )
        tasks[task] = SurrogateRecord.of(fitted)
    path = found.folder.surrogates
    write_record(path, Surrogates(coefficients=front.axes, tasks=tasks))
    return run
