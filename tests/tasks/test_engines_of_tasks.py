"""What generates answers: who is taken, and that it is part of what a task is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from task_files import write_generation

from mergekit_map.config.schema import MapBlock
from mergekit_map.config.tasks import LmEvalTask
from mergekit_map.tasks.engines import EngineChoice, choose_engines, installed_vllm
from mergekit_map.tasks.loading import load_tasks


def load(folder: Path, *, draws: bool = False, **own: Any) -> tuple[MapBlock, Any]:
    write_generation(folder, draws=draws)
    spec = {"lm_eval": "generation.yaml", "metric": "answer_tokens", **own}
    specs = {"mine": LmEvalTask.model_validate(spec)}
    tasks, problems = load_tasks(specs, folder)
    assert not problems
    return MapBlock.model_validate({"tasks": specs}), tasks


def choose(
    folder: Path, *, on_gpu: bool, draws: bool = False, **block: Any
) -> EngineChoice:
    spec, tasks = load(folder, draws=draws)
    spec = MapBlock.model_validate({"tasks": spec.tasks, **block})
    return choose_engines(tasks, spec, on_gpu=on_gpu, used={})["mine"]


@pytest.mark.skipif(installed_vllm() is not None, reason="vLLM is installed here")
@pytest.mark.parametrize(
    ("version", "on_cpu"), [("0.33.0", "hf"), ("0.33.0+cpu", "vllm")]
)
def test_vllm_is_taken_where_it_is_installed_and_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, on_cpu: str
) -> None:
    for on_gpu in (False, True):
        found = choose(folder, on_gpu=on_gpu)
        assert (found.name, found.why) == ("hf", "vLLM is not installed")
    # The mark of an installed package, where Python looks for them.
    info = folder / f"vllm-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    (info / "METADATA").write_text(text)
    monkeypatch.syspath_prepend(str(folder))

    assert choose(folder, on_gpu=False).name == on_cpu
    found = choose(folder, on_gpu=True)
    assert (found.name, found.why) == ("vllm", f"vLLM {version} is installed")
    # From disk, one engine after the other would have to be started.
    assert choose(folder, on_gpu=True, merge="disk").name == "hf"
    assert choose(folder, on_gpu=True, engine="hf").name == "hf"


def test_answers_that_are_drawn_are_generated_alike_for_every_merge(
    folder: Path,
) -> None:
    found = choose(folder, on_gpu=True, draws=True, engine="vllm")

    assert found.name == "hf"
    assert "draws its answers" in found.why


def test_what_generates_is_part_of_what_a_task_is(folder: Path) -> None:
    _, tasks = load(folder)
    task = tasks["mine"]

    found = {
        EngineChoice("hf", "").definition(task),
        EngineChoice("vllm", "").definition(task),
        EngineChoice("vllm", "", {"tensor_parallel_size": 2}).definition(task),
    }

    assert len(found) == 3
    # Searches that knew of no engines go on.
    assert EngineChoice("hf", "").definition(task) == task.fingerprint[:16]
    # How much memory it may take changes no answer.
    less = EngineChoice("vllm", "", {"gpu_memory_utilization": 0.4})
    assert less.definition(task) == EngineChoice("vllm", "other").definition(task)


def test_a_task_that_generates_nothing_has_no_engine(folder: Path) -> None:
    spec, tasks = load(folder, lm_eval="choices.yaml", metric="acc")
    spec = spec.model_copy(update={"engine": "vllm"})

    assert choose_engines(tasks, spec, on_gpu=True, used={}) == {}
