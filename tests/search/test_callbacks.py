"""Whoever wants to hear how a search goes hears all of it, and cannot stop it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import logged
from plain_runs import write_plain

from mergekit_map import load_project, search_front
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation
from mergekit_map.search.budget import forecast
from mergekit_map.search.callbacks import Callback, Started
from mergekit_map.search.study import Progress

ROOT = Path(__file__).parents[2]


class Heard(Callback):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.started: list[Started] = []
        self.progressed: list[Progress] = []
        self.evaluations: list[Evaluation] = []
        self.found: list[Front] = []
        self.stopped: list[BaseException] = []
        self.stages: list[str] = []
        self.notices: list[str] = []

    def on_start(self, started: Started) -> None:
        self.started.append(started)

    def on_stage(self, text: str, seconds: float | None) -> None:
        self.stages += [text] if seconds is None else []

    def on_progress(self, progress: Progress) -> None:
        self.progressed.append(progress)

    def on_measured(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)

    def on_finish(self, front: Front) -> None:
        self.found.append(front)

    def on_stop(self, error: BaseException) -> None:
        self.stopped.append(error)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def progress(self, progress: Progress) -> None:
        """Take what a reporter must."""


@pytest.fixture(autouse=True)
def _config(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_plain(family)


def search(*callbacks: Callback) -> tuple[Front, Heard]:
    reporter = Heard()
    project = load_project(Path("config.yml"))
    run = search_front(project, "run", reporter, callbacks=callbacks)
    return run.front, reporter


def test_a_callback_hears_start_every_measurement_and_the_end() -> None:
    heard = Heard()

    front, _ = search(heard)

    (started,) = heard.started
    assert started.run == Path("run")
    assert set(started.tasks) == {"one", "two"}
    assert heard.evaluations == logged(Path("run"))
    counts = [progress.done for progress in heard.progressed]
    assert counts == list(range(len(heard.evaluations)))
    study = load_project(Path("config.yml")).study()
    most = forecast(study, checkpoints=False).measurements
    assert {progress.total for progress in heard.progressed} == {most}
    assert heard.found == [front]
    assert not heard.stopped
    assert any(text.startswith("loading the merge (") for text in heard.stages)


class Failing(Heard):
    """Fails at the third measurement."""

    def on_measured(self, evaluation: Evaluation) -> None:
        super().on_measured(evaluation)
        if len(self.evaluations) == 3:
            raise ConnectionError("no network")


def test_a_callback_that_fails_is_left_out_and_the_search_goes_on() -> None:
    failing, other = Failing(), Heard()

    front, reporter = search(failing, other)

    assert front == other.found[0]
    assert len(failing.evaluations) == 3
    assert not failing.found
    (notice,) = [text for text in reporter.notices if "callback" in text]
    assert "Failing failed (ConnectionError: no network)" in notice


def test_a_callback_hears_that_a_search_stops() -> None:
    class Stopping(Heard):
        def on_measured(self, evaluation: Evaluation) -> None:
            raise KeyboardInterrupt(evaluation.task)

    heard = Heard()

    with pytest.raises(KeyboardInterrupt, match="one"):
        search(Stopping(), heard)

    assert [type(error) for error in heard.stopped] == [KeyboardInterrupt]
    assert not heard.found


class Sink:
    """A run of somebody's, which keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.summary: dict[str, Any] = {}

    def log(self, values: dict[str, Any], step: int) -> None:
        self.rows.append((values, step))

    def log_metric(self, name: str, value: float, step: int | None = None) -> None:
        self.rows.append((name, value, step))

    def __getattr__(self, name: str) -> Any:
        return lambda *values, **named: self.rows.append((name, *values, named))


def example(name: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "recipes" / "callbacks")
        return importlib.import_module(name)


def test_the_examples_log_every_measurement_and_what_was_chosen() -> None:
    assert not {"wandb", "mlflow"} & {*sys.modules}
    wandb, mlflow = Sink(), Sink()

    front, reporter = search(
        example("to_wandb").ToWandb(run=wandb),
        example("to_mlflow").ToMlflow(mlflow=mlflow),
    )

    assert not [text for text in reporter.notices if "callback" in text]
    log = logged(Path("run"))
    pairs = zip(wandb.rows, log, strict=False)
    assert [row[0][f"task/{e.task}"] for row, e in pairs] == [e.value for e in log]
    for name, value in front.chosen.coefficients.items():
        assert wandb.summary[f"chosen/weight/{name}"] == value
    assert wandb.rows[-1] == ("finish", {})
    ones = [row[1] for row in mlflow.rows if row[0] == "one"]
    assert ones == [e.value for e in log if e.task == "one"]
    artifacts = [Path(row[1]) for row in mlflow.rows if row[0] == "log_artifact"]
    assert artifacts
    assert all(path.exists() for path in artifacts)
