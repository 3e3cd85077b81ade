"""In which order a search writes what it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nested_runs import invoke, write
from plain_runs import write_plain

from mergekit_map.results.front import Front
from mergekit_map.results.log import read_log
from mergekit_map.results.records import read_record


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
        patch.setattr("mergekit_map.workflows.search.save_front", stop)
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
    for module in ("merging.devices", "workflows.search", "workflows.inspect"):
        monkeypatch.setattr(f"mergekit_map.{module}.best_device", lambda: "meta")

    again = invoke("search", "config.yml", "run")

    assert "measured on the CPU, as they were before; --device meta" in again.output
    assert "merge run OUT" in again.output
    assert Path("run/evaluations.jsonl").read_bytes() == log
    invoke("merge", "run", "out", "--trust-run")
    plan = json.loads(invoke("inspect", "config.yml", "--json").stdout)["plan"]
    assert plan["device"] == "meta"
    assert "on meta, since it is there" in plan["device_choice"]


_SCORES = """
def one(model, tokenizer, documents):
    level = 100 * model.lm_head.weight.float().mean().item()
    ids = range(60) if documents is None else documents
    with open("asked.txt", "a") as file:
        file.write(f"{len(ids)}\\n")
    return [level + (i % 7) / 7 + level * (i % 11) / 11 for i in ids]
"""


def test_a_search_on_a_subset_measures_all_documents_where_it_matters(
    family: dict[str, Path],
) -> None:
    config = write_plain(family, ["one"], _SCORES, evaluations=8)
    config["map"]["tasks"]["one"]["documents"] = 12
    write(config)
    invoke("search", "config.yml", "run")

    lines = [*read_log(Path("run/evaluations.jsonl"))]
    subset = [e for e in lines if not e.whole]
    assert {e.role for e in lines if e.whole} <= {"anchor", "front"}
    assert {e.role for e in subset} >= {"design"}
    asked = Path("asked.txt").read_text().split()
    assert sum(map(int, asked)) <= sum(e.n for e in lines)
    assert {e.n for e in subset} == {12}
    front = read_record(Path("run/front.json"), Front, "front")
    assert front.chosen.is_measured("one")
    assert {merge.measured["one"].documents for merge in front.merges} == {12}
    before = Path("run/front.json").read_bytes()

    invoke("search", "config.yml", "run")

    assert Path("asked.txt").read_text().split() == asked
    assert Path("run/front.json").read_bytes() == before
