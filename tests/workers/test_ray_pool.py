"""A Ray cluster finds what one process finds, and survives what dies of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from runs import assert_same_run

from mergekit_map.errors import ConfigError
from mergekit_map.types import MeasurementRequest
from mergekit_map.workers.pool import Answer, Opening, WorkerPool
from mergekit_map.workers.ray import RayWorker, gpus_of_each, ray_pool
from mergekit_map.workflows.search import search_front

HAS_RAY = pytest.mark.skipif(
    not any(Path(folder, "ray", "_raylet.so").exists() for folder in sys.path),
    reason="needs Ray: pip install 'mergekit-map[ray]'",
)


def test_gpus_are_shared_among_actors() -> None:
    assert [gpus_of_each([8], count) for count in (8, 4, 3, 1)] == [1, 2, 2, 8]
    assert [gpus_of_each([8, 8], count) for count in (3, 2)] == [4, 8]
    assert [gpus_of_each([1] * 8, count) for count in (4, 9)] == [1, 0.5]
    assert [gpus_of_each([0], count) for count in (1, 4)] == [0, 0]
    assert gpus_of_each([2], 3) == 0.5  # a part must fit on one
    assert gpus_of_each([1], 3) == 0.3333  # three of these fit on one


def test_who_has_no_ray_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")

    with (
        pytest.raises(ConfigError, match=r"pip install 'mergekit-map\[ray\]'"),
        ray_pool(2),
    ):
        pass


@pytest.fixture(scope="module")
def actors() -> Iterator[WorkerPool]:
    """Two actors of a cluster that ends with the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with ray_pool(2) as actors:
            yield actors


def own_actors() -> list[int]:
    """List the processes of actors of clusters that this program started."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path("/proc", name, "cmdline").read_bytes().startswith(b"ray::Actor"):
                found += [int(name)] if parent(str(parent(name))) == os.getpid() else []
    return found


def parent(process: str) -> int:
    status = Path("/proc", process, "stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


@HAS_RAY
@pytest.mark.slow
@pytest.mark.usefixtures("config")
def test_actors_find_what_one_process_finds_also_when_some_are_killed(
    actors: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_front("config.yml", "whole")
    search_front("config.yml", "shared", workers=actors)
    assert_same_run(Path("shared"), Path("whole"))
    asked, ask = list[MeasurementRequest](), RayWorker.ask

    def ask_and_kill(
        worker: RayWorker, opening: Opening, request: MeasurementRequest
    ) -> Future[Answer]:
        future = ask(worker, opening, request)
        asked.append(request)
        if len(asked) in (5, 20):
            os.kill(own_actors()[0], signal.SIGKILL)
        return future

    monkeypatch.setattr(RayWorker, "ask", ask_and_kill)
    search_front("config.yml", "killed", workers=actors)

    assert len(asked) > len(set(asked))
    assert_same_run(Path("killed"), Path("whole"))


@HAS_RAY
@pytest.mark.slow
def test_nobody_without_the_token_is_let_in(actors: WorkerPool) -> None:
    assert actors.count == 2
    script = """
    import sys, ray
    ray.init(address=sys.argv[1], logging_level="ERROR")
    print("in")
    """
    import ray

    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", textwrap.dedent(script), address]
    known = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    wrong = {**known, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}

    def said(environment: dict[str, str]) -> str:
        options = {"capture_output": True, "text": True, "timeout": 120}
        return subprocess.run(command, check=False, env=environment, **options).stdout

    assert said({**os.environ, "RAY_AUTH_MODE": "token"}).strip().endswith("in")
    assert "in" not in said(wrong).split()
    assert "in" not in said({**known, "RAY_AUTH_MODE": "disabled"}).split()
