"""In which order a search writes what it found, and what callers in Python hear."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import transformers
from runs import change_json, invoke, write_plain

from mergekit_map.errors import ConfigError
from mergekit_map.utils.progress import warn
from mergekit_map.workflows.callbacks import reporting


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
        patch.setattr("mergekit_map.merging.recipe.Recipes.write_soup", stop)
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
    manifest = Path("run/.state/manifest.json")
    change_json(manifest, lambda content: content["packages"].update(torch="1.0"))
    monkeypatch.setattr("mergekit_map.merging.devices.best_device", lambda: "meta")

    again = invoke("search", "config.yml", "run")

    assert "measured on the CPU, as they were before; --device meta" in again.output
    assert "merge run OUT" in again.output
    assert "earlier measurements are those of torch 1.0" in again.output
    assert Path("run/evaluations.jsonl").read_bytes() == log
    invoke("merge", "run", "out", "--trust-run")
    plan = json.loads(invoke("inspect", "config.yml", "--json").stdout)["plan"]
    assert plan["device"] == "meta"
    assert "on meta, since it is there" in plan["device_choice"]


def test_a_notice_is_a_warning_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with reporting(None), caplog.at_level(logging.WARNING):
        warn("3 measurements failed")
        with ThreadPoolExecutor() as pool:  # another search would reseed this one
            future = pool.submit(lambda: reporting(()).__enter__())
            with pytest.raises(ConfigError, match="a process for each search"):
                future.result()

    assert [r.getMessage() for r in caplog.records] == ["3 measurements failed"]
    assert caplog.records[0].name.startswith("mergekit_map")


def test_bars_of_libraries_are_back_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = transformers.utils.logging
    monkeypatch.setattr(bars, "_tqdm_active", True)

    def stop() -> None:
        with reporting(None):
            assert not bars.is_progress_bar_enabled()
            raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        stop()

    assert bars.is_progress_bar_enabled()
