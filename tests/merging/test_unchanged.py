"""Models that are replaced while merges of them are measured."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
import yaml

from mergekit_map.errors import MergeError
from mergekit_map.results.log import read_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.workflows.search import search_front

TASK = """\
from pathlib import Path

def measure(model, tokenizer):
    calls = Path("calls")
    calls.write_text((calls.read_text() if calls.exists() else "") + ".")
    if len(calls.read_text()) == 3:
        change()
    return float(model.lm_head.weight.double().sum())
"""
REPLACED = """
def change():
    Path("a/model.safetensors").write_bytes(Path("b/model.safetensors").read_bytes())
"""
NUMBERS = itertools.count()


def prepared(
    folder: Path,
    family: dict[str, Path],
    change: str,
    monkeypatch: pytest.MonkeyPatch,
    merge: str = "disk",
) -> Path:
    """Write models, a configuration, and a task that changes them at its third call."""
    for name in ("base", "a", "b"):
        shutil.copytree(family[name], folder / name)
    module = f"changing_{next(NUMBERS)}"  # Python imports each name once
    (folder / f"{module}.py").write_text(TASK + change)
    config = {
        "merge_method": "task_arithmetic",
        "base_model": "base",
        "models": [{"model": "a"}],
        "map": {
            "merge": merge,
            "search": {"evaluations": 4, "remeasure": 0},
            "tasks": {"sum": {"python": f"{module}:measure", "direction": "maximize"}},
        },
    }
    (folder / "merge.yml").write_text(yaml.safe_dump(config))
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("merge", ["disk", "memory"])
def test_a_model_that_is_replaced_stops_the_search_before_a_mixture_is_measured(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: str
) -> None:
    folder = prepared(tmp_path, family, REPLACED, monkeypatch, merge)

    with pytest.raises(MergeError, match="a changed while"):
        search_front("merge.yml", "run")

    assert len(list(read_log(RunFolder(folder / "run").log))) == 3
    shutil.copy(family["a"] / "model.safetensors", "a/model.safetensors")
    run = RunFolder(search_front("merge.yml", "run").path)
    assert len({e.merge for e in read_log(run.log)}) == 1
