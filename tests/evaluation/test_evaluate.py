"""Merging and the tasks together, on tiny models."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs import write, write_plain, write_texts
from task_files import kept_generations, write_ask

from mergekit_map.errors import EvaluationError, MergeError
from mergekit_map.evaluation.evaluator import Worker, merges_in_memory
from mergekit_map.evaluation.project import load_project
from mergekit_map.results.log import read_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.types import MeasurementRequest
from mergekit_map.utils.shutdown import Interrupted, deferred
from mergekit_map.workflows.search import search_front


@pytest.fixture
def config(family: dict[str, Path]) -> dict[str, Any]:
    """A text and a function of one's own as tasks."""
    code = "def f(model, tokenizer):\n    return 0.5\n"
    config = write_plain(family, ["f"], code, method="ties", density=0.5)
    config["map"]["tasks"] |= write_texts("text", max_tokens=300)
    return config


@pytest.mark.parametrize("change", ["mul_(2)", "copy_(model.lm_head.weight.flip(0))"])
def test_after_a_function_that_changes_the_weights_the_merge_is_written_again(
    config: dict[str, Any], change: str
) -> None:
    code = f"def f(model, tokenizer):\n    model.lm_head.weight.{change}; return 1\n"
    Path("mine.py").write_text(code)
    write(config)
    merge = tuple({"a": 0.4, "b": 0.7}.items())
    worker = Worker(merges_in_memory(load_project(Path("config.yml"))))

    text, own = (MeasurementRequest(merge, task) for task in ("text", "f"))
    before = worker.measure(text)
    with pytest.raises(EvaluationError, match="changed the weights"):
        worker.measure(own)

    assert replace(worker.measure(text), seconds=before.seconds) == before
    worker.close()


@pytest.mark.parametrize("end", ["return 1", "raise RuntimeError"])
def test_a_measurement_during_which_a_signal_came_is_not_logged(
    config: dict[str, Any], end: str
) -> None:
    code = "from mergekit_map.utils.shutdown import _State\ndef f(model, tokenizer):\n"
    Path("mine.py").write_text(f"{code}    _State.number = 15\n    {end}\n")
    write(config)

    with pytest.raises(Interrupted, match=r"^\Z"), deferred():
        search_front("config.yml", "run")

    assert not Path("run/evaluations.jsonl").exists()


def test_two_metrics_of_a_merge_are_of_one_generation_and_of_that_merge(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ask(("a b", "c", "d e f"))
    config["map"]["tasks"] = {
        name: {"lm_eval": "ask.yaml", "metric": metric}
        for name, metric in (("right", "exact_match"), ("length", "answer_tokens"))
    }
    coefficients = [{"a": x, "b": 1 - x} for x in (0.0, 1.0, 0.0)]
    write(config)
    alone = []
    for c in coefficients[:2]:
        with merges_in_memory(load_project(Path("config.yml"))) as merges:
            alone.append(merges(c)["length"](None))
    generated = kept_generations(monkeypatch)
    with merges_in_memory(load_project(Path("config.yml"))) as merges:
        found = []
        for c in coefficients:
            measures = merges(c)
            measures["right"](None)
            found.append(measures["length"](None))

    assert len(generated) == 3
    assert generated[0] == generated[2] != generated[1]
    assert found == [*alone, alone[0]]


REPLACING = """\
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
    family: dict[str, Path], merge: str
) -> None:
    here = {n: shutil.copytree(family[n], n) for n in ("base", "a", "b")}
    config = write_plain(here, ["measure"], REPLACING, remeasure=0)
    config["map"]["merge"] = merge
    write(config)

    with pytest.raises(MergeError, match="a changed while"):
        search_front("config.yml", "run")

    assert len(list(read_log(RunFolder(Path("run")).log))) == 3
    shutil.copy(family["a"] / "model.safetensors", "a/model.safetensors")
    run = RunFolder(search_front("config.yml", "run").path)
    assert len({e.merge for e in read_log(run.log)}) == 1
