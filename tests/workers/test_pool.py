"""Workers find what one process finds, whoever is done first and whoever dies."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from runs import assert_same_run, lines, untimed, write

from mergekit_map.errors import ConfigError, EvaluationError, MergeError
from mergekit_map.evaluation.evaluator import Worker
from mergekit_map.results.log import read_log
from mergekit_map.types import MeasurementRequest
from mergekit_map.workers import pool, worker_main
from mergekit_map.workers.pool import (
    Answer,
    Opening,
    WorkerPool,
    WorkerProcess,
    process_pool,
)
from mergekit_map.workflows.search import search_front

CHOICES = {"lm_eval": "choices.yaml", "metric": "acc", "limit": 12}


class Died(Exception):
    """What futures of a fake worker raise once it is dead."""


class Fake:
    """A worker of this process; when its answers come is by chance, and so are deaths.

    ``kill`` picks whose work.
    """

    dies_with = Died

    def __init__(self, boss: Fakes):
        self._boss = boss
        self._worker: list[Worker] = []

    def ask(self, opening: Opening, request: MeasurementRequest) -> Future[Answer]:
        return self._boss.later(request, lambda: self._alone(opening, request))

    def end(self) -> None:
        self._worker = []

    def _alone(self, opening: Opening, request: MeasurementRequest) -> Answer:
        """Answer with the models that this one opened."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker_main, "_OPENED", self._worker)
            return worker_main.answer(opening, request)


class Fakes:
    """Decides when each fake worker answers, or that it dies instead."""

    def __init__(self, count: int, seed: int = 0, deaths: int = 0):
        self.kill: Callable[[MeasurementRequest], bool] = lambda _: False
        self.asked: list[MeasurementRequest] = []
        self.killed: set[MeasurementRequest] = set()
        self._rng, self._deaths = random.Random(seed), deaths
        self._open: list[
            tuple[MeasurementRequest, Callable[[], Answer], Future[Answer]]
        ] = []
        self.pool = WorkerPool([Fake(self) for _ in range(count)])

    def later(
        self, work: MeasurementRequest, answer: Callable[[], Answer]
    ) -> Future[Answer]:
        future: Future[Answer] = Future()
        self._open.append((work, answer, future))
        return future

    def wait(self, futures: list[Future[Answer]], *_: object) -> None:
        """Stand in for ``concurrent.futures.wait``: one of them is done afterwards."""
        self._open = [one for one in self._open if one[2] in futures]
        work, answer, future = self._open.pop(self._rng.randrange(len(self._open)))
        dies = work not in self.killed and self._rng.random() < 0.2
        if self.kill(work) or (dies and len(self.killed) < self._deaths):
            self.killed.add(work)
            future.set_exception(Died("killed"))
        else:
            self.asked.append(work)
            future.set_result(answer())


@pytest.fixture(autouse=True)
def _paths() -> Iterator[None]:
    kept = [*sys.path]
    yield
    sys.path[:] = kept
    sys.modules.pop("mine", None)


def search(
    config: dict[str, Any], run: str, workers: Fakes | WorkerPool | int | None = None
) -> Path:
    write(config)
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(workers, Fakes):
            patch.setattr(pool, "wait", workers.wait)
            workers = workers.pool
        search_front("config.yml", run, workers=workers)
    return Path(run)


VARIANTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "all kinds of tasks": lambda block: (
        block.update(engine="hf"),
        block["tasks"].update(
            choices=CHOICES,
            ask={"lm_eval": "ask.yaml", "metric": "answer_tokens"},
            mine={"python": "mine:one", "direction": "maximize"},
        ),
        block["search"].update(evaluations=6),
    ),
    "bayesian": lambda block: block["search"].update(
        strategy="bayesian", evaluations=10
    ),
    "on a subset": lambda block: [
        task.update(documents=8) for task in block["tasks"].values()
    ],
    "held out, on disk": lambda block: (
        block.update(merge="disk"),
        block["search"].update(holdout=0.25, evaluations=6),
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "on a subset" else pytest.mark.slow)
        for name in VARIANTS
    ],
)
def test_workers_find_what_one_process_finds(name: str, config: dict[str, Any]) -> None:
    VARIANTS[name](config["map"])
    if name == "bayesian":  # the models on disk are a project of their own
        config["merge_method"] = "ties"
    alone = search(config, "alone")
    fakes = Fakes(3, seed=len(name) + 1, deaths=3)
    assert_same_run(search(config, "many", fakes), alone)
    assert fakes.killed
    assert any("sampling" in line for line in untimed(alone)) == (name == "on a subset")
    assert not any("engine" in line for line in untimed(alone))  # of ``generate``
    held_out = any(e["role"] == "holdout" for e in untimed(alone))
    assert held_out == name.startswith("held out")


def test_work_that_two_died_at_is_a_failed_measurement(config: dict[str, Any]) -> None:
    fakes, third = Fakes(2), list[MeasurementRequest]()

    def kill(work: MeasurementRequest) -> bool:
        merges = {e.key[0] for e in read_log(Path("run/evaluations.jsonl"))}
        if len(merges) > 2 and work.task == "two" and not third:
            third.append(work)
        return work in third

    fakes.kill = kill
    search(config, "run", fakes)

    [failed] = [e for e in read_log(Path("run/evaluations.jsonl")) if e.failed]
    assert (failed.task, failed.key[0]) == ("two", tuple(sorted(third[0].merge)))
    assert "measured it died, and so did a second" in str(failed.error)


def test_workers_that_die_at_first_stop_a_search(config: dict[str, Any]) -> None:
    """It is no failure of a merge: nothing of it is in the log."""
    fakes = Fakes(2)
    fakes.kill = lambda _: True
    with pytest.raises(MergeError, match=r"died, and so did a second .*\(killed\)"):
        search(config, "run", fakes)
    assert not Path("run/evaluations.jsonl").exists()

    fakes.kill = lambda _: False
    assert untimed(search(config, "run", fakes))


def test_models_that_cannot_be_opened_stop_a_search_as_in_one_process(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise EvaluationError("no room")

    monkeypatch.setattr("mergekit_map.evaluation.evaluator.check_room", refused)
    said = []
    for workers in (None, Fakes(2)):
        with pytest.raises(MergeError, match="no room") as error:
            search(config, "run", workers)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_what_was_measured_ahead_is_not_measured_again(config: dict[str, Any]) -> None:
    """A search that is stopped keeps what came before its turn."""
    VARIANTS["on a subset"](config["map"])
    alone, log = search(config, "alone"), Path("run/evaluations.jsonl")
    fakes, others = Fakes(3, seed=1), Fakes(2)

    def stop(_: MeasurementRequest) -> bool:
        if len(fakes.asked) > max(8, len([*read_log(log)])):
            raise KeyboardInterrupt("stopped")
        return False

    fakes.kill = stop
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        search(config, "run", fakes)
    before = log.read_bytes()

    assert_same_run(search(config, "run", others), alone)
    assert log.read_bytes().startswith(before)
    assert len(lines("alone")) == len({*fakes.asked}) + len({*others.asked})
    assert not {*fakes.asked} & {*others.asked}


DYING = """
import os, signal
from pathlib import Path
def one(model, tokenizer):
    if os.getpid() != DRIVER and not Path("dead").exists():
        Path("dead").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return model.lm_head.weight[0].tolist()
"""


def test_processes_of_which_one_is_killed_find_what_one_process_finds(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.py").write_text(f"DRIVER = {os.getpid()}\n{DYING}")
    config["map"]["tasks"]["mine"] = {"python": "mine:one", "direction": "maximize"}
    config["map"]["tasks"]["choices"] = CHOICES
    config["map"]["search"].update(evaluations=6)
    alone = search(config, "alone")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert_same_run(search(config, "many", 2), alone)
    assert Path("dead").exists()
    assert not [*scratch.glob("mergekit-map-*")]
    assert not [p for p in multiprocessing.active_children() if p.is_alive()]


def test_workers_that_are_gone_are_not_waited_for(config: dict[str, Any]) -> None:
    with process_pool(1) as workers:
        pass
    with pytest.raises(ConfigError, match="these workers have ended"):
        search(config, "run", workers)


class Exit:
    """A request that ends the process which reads it."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


def test_a_worker_with_gpus_imports_nothing_from_the_working_directory() -> None:
    Path("weakref.py").write_text("open('ran', 'w').close()\n")
    worker, nothing = WorkerProcess("0"), Opening(b"", [], [], 1, 1)

    # One that died while it had nothing to do is started anew.
    for _ in range(2):
        with pytest.raises(BrokenProcessPool, match="terminated abruptly"):
            worker.ask(nothing, Exit()).result()

    worker.end()
    assert not Path("ran").exists()
