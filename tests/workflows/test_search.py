"""In which order a search writes what it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nested_runs import invoke
from plain_runs import write_plain


def test_a_run_is_finished_when_all_of_it_is_there(
    family: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plain(family, ["one"], remeasure=0)
    invoke("search", "config.yml", "run")
    manifest = Path("run/.state/manifest.json")
    finished = manifest.read_bytes()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # the last that is written before it
        patch.setattr("mergekit_map.workflows.search._write_soup", stop)
        invoke("search", "config.yml", "run", code=130)

    assert not manifest.exists()
    invoke("search", "config.yml", "run")
    assert manifest.read_bytes() == finished


def test_a_search_goes_on_on_its_device_where_another_is_there(
    family: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plain(family, ["one"], remeasure=0)
    invoke("search", "config.yml", "run")
    log = Path("run/evaluations.jsonl").read_bytes()
    monkeypatch.setattr("mergekit_map.merging.devices.best_device", lambda: "meta")

    again = invoke("search", "config.yml", "run")

    assert "measured on the CPU, as they were before; --device meta" in again.output
    assert "merge run OUT" in again.output
    assert Path("run/evaluations.jsonl").read_bytes() == log
    invoke("merge", "run", "out", "--trust-run")
    plan = json.loads(invoke("inspect", "config.yml", "--json").stdout)["plan"]
    assert plan["device"] == "meta"
    assert "on meta, since it is there" in plan["device_choice"]
