"""Models that are replaced while merges of them are measured."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from nested_runs import write
from plain_runs import write_plain

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
        Path("a/model.safetensors").write_bytes(
            Path("b/model.safetensors").read_bytes()
        )
    return float(model.lm_head.weight.double().sum())
"""


@pytest.mark.parametrize("merge", ["disk", "memory"])
def test_a_model_that_is_replaced_stops_the_search_before_a_mixture_is_measured(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("base", "a", "b"):
        shutil.copytree(family[name], name)
    here = {name: name for name in ("base", "a", "b")}
    config = write_plain(here, ["measure"], TASK, remeasure=0)
    config["map"]["merge"] = merge
    write(config)

    with pytest.raises(MergeError, match="a changed while"):
        search_front("config.yml", "run")

    assert len(list(read_log(RunFolder(tmp_path / "run").log))) == 3
    shutil.copy(family["a"] / "model.safetensors", "a/model.safetensors")
    run = RunFolder(search_front("config.yml", "run").path)
    assert len({e.merge for e in read_log(run.log)}) == 1
