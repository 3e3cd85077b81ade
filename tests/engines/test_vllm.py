"""Merges written into vLLM, against engines that mergekit's checkpoints start.

Run them with tests/engines/run_vllm.sh, which says what it wants.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from runs import lines

pytest.importorskip(
    "vllm", reason="vLLM is not installed; see tests/engines/run_vllm.sh"
)

from mergekit_map.evaluation.project import Project, load_project
from mergekit_map.evaluation.vllm import InPlace, checkpoint_in_vllm, merges_in_vllm
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.types import Measurement

Write = Callable[..., Path]
pytestmark = [
    pytest.mark.slow,
    # Of vLLM and what it imports.
    pytest.mark.filterwarnings("ignore"),
]


def opened(config: Path) -> type[Any]:
    with merges_in_vllm(load_project(config).by_engine()[1]) as merges:
        return type(merges)


def fresh(project: Project, merge: dict[str, float]) -> Measurement:
    """Measure with a fresh engine on mergekit's checkpoint."""
    with TemporaryDirectory() as name:
        folder = Path(name, "stock")
        write_checkpoint(project.space.config(merge), folder, project.options)
        with checkpoint_in_vllm(project, folder) as merges:
            return merges({})["ask"](None)


@pytest.mark.parametrize("method", ["task_arithmetic", "ties"])
def test_logged_values_are_those_of_a_fresh_engine_on_mergekits_checkpoint(
    write_config: Write, method: str
) -> None:
    config = write_config("llama", method, engine="vllm")
    command = [sys.executable, "-m", "mergekit_map", "search", str(config), "run"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)

    assert "started anew for each merge" not in done.stderr
    logged = {
        tuple(line["coefficients"].items()): line
        for line in lines("run")
        if line["task"] == "ask"
    }
    assert {line["engine"] for line in logged.values()} == {"vllm"}
    assert len({line["value"] for line in logged.values()}) > 2
    project = load_project(config).by_engine()[1]
    for merge, line in list(logged.items())[-2:]:
        found = fresh(project, dict(merge))
        assert (found.value, found.stderr) == (line["value"], line["stderr"])


@pytest.mark.parametrize(
    ("resets", "message"),
    [
        (True, "nats from what it says of the checkpoint, and 0 are its own"),
        (False, "keeps what it computed of the merge before"),
    ],
)
def test_a_stale_prefix_cache_is_caught_before_anything_is_measured(
    write_config: Write,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    resets: bool,
    message: str,
) -> None:
    from vllm import LLM

    monkeypatch.setattr(LLM, "reset_prefix_cache", lambda _: resets)

    assert opened(write_config("llama", engine="vllm")) is not InPlace
    assert message in caplog.text


def test_a_stale_head_is_caught_and_each_merge_gets_its_own_engine(
    write_config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """On a CPU, vLLM keeps a packed copy of a head that is tied."""
    assert opened(write_config("tied-qwen2", engine="vllm")) is not InPlace
    assert float(re.search(r"is up to (\S+) nats", caplog.text)[1]) > 0.01


SPLIT = {"name": "vllm", "args": {"tensor_parallel_size": 2}}


@pytest.mark.parametrize(("kind", "engine"), [("experts", "vllm"), ("llama", SPLIT)])
def test_experts_and_models_in_halves_are_measured_as_by_a_fresh_engine(
    write_config: Write, kind: str, engine: Any
) -> None:
    project = load_project(write_config(kind, engine=engine)).by_engine()[1]
    merge = dict(zip(project.space.names, (0.3, 0.6), strict=True))

    with merges_in_vllm(project) as merges:
        # Experts are written in place or from disk, as the self-check finds.
        assert isinstance(merges, InPlace) or kind == "experts"
        found = merges(merge)["ask"](None)

    assert fresh(project, merge) == found
