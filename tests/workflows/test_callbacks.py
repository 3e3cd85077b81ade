"""Whoever wants to hear how a search goes hears all of it, and cannot stop it."""

from __future__ import annotations

import importlib
import sys
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fakes import logged
from runs import write_plain

from mergekit_map import load_project, search_front
from mergekit_map.results.front import Front
from mergekit_map.workflows.callbacks import Callback, ProgressLine, reporting


def heard(callback: Mock, name: str) -> list[Any]:
    """List what a callback was told by one of its methods."""
    return [call.args[0] for call in getattr(callback, name).call_args_list]


@pytest.fixture(autouse=True)
def _config(family: dict[str, Path]) -> None:
    write_plain(family)


def search(*callbacks: Any) -> Front:
    return search_front(load_project(Path("config.yml")), "run", callbacks).front


def test_a_callback_hears_start_every_measurement_and_the_end() -> None:
    callback = Mock(spec=Callback)

    front = search(callback)

    (started,) = heard(callback, "on_start")
    assert started.run == Path("run")
    assert set(started.tasks) == {"one", "two"}
    log, progressed = logged(Path("run")), heard(callback, "on_progress")
    assert heard(callback, "on_measured") == log
    assert [progress.done for progress in progressed] == list(range(len(log)))
    # Of two tasks: six merges, a point of the front, and the chosen one.
    assert {progress.total for progress in progressed} == {2 * (6 + 1 + 1)}
    assert heard(callback, "on_finish") == [front]
    assert not callback.on_stop.called


def test_a_callback_hears_that_a_search_stops_and_where_it_goes_on() -> None:
    stopping, callback = Mock(spec=Callback), Mock(spec=Callback)
    stopping.on_measured.side_effect = [*[None] * 4, KeyboardInterrupt("stopped")]

    with pytest.raises(KeyboardInterrupt, match="stopped"):
        search(callback, stopping)
    assert [type(e) for e in heard(callback, "on_stop")] == [KeyboardInterrupt]
    assert not callback.on_finish.called
    search(callback)

    progressed, n_measured = heard(callback, "on_progress"), len(logged(Path("run")))
    assert [one.done for one in progressed] == [*range(5), *range(5, n_measured)]
    assert {one.total for one in progressed} == {2 * (6 + 1 + 1)}


def test_a_callback_that_fails_is_left_out_and_the_search_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing, other = Mock(spec=Callback), Mock(spec=Callback)
    failing.on_measured.side_effect = [None, None, ConnectionError("no network")]
    line = Mock(spec=ProgressLine, clear=Mock(side_effect=AttributeError("_seen")))

    assert [search(failing, line, other)] == heard(other, "on_finish")
    assert failing.on_measured.call_count == 3
    assert not failing.on_finish.called
    texts = [r.getMessage() for r in caplog.records if "callbacks" in r.name]
    assert texts[0].startswith("the callback Mock failed (ConnectionError: no network)")
    assert "AttributeError: _seen" in texts[1]


def test_an_error_that_a_notebook_keeps_keeps_no_models() -> None:
    seen = list[weakref.ref[Mock]]()

    def stop() -> None:
        model = Mock()
        seen.append(weakref.ref(model))
        raise KeyboardInterrupt("stop")

    with pytest.raises(KeyboardInterrupt, match="stop") as kept, reporting([]):
        stop()
    assert kept.traceback
    assert seen[0]() is None


def test_the_examples_log_every_measurement_and_what_was_chosen(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not {"wandb", "mlflow"} & {*sys.modules}
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "recipes" / "callbacks")
    wandb, mlflow = Mock(summary={}), Mock()

    front = search(
        importlib.import_module("to_wandb").ToWandb(run=wandb),
        importlib.import_module("to_mlflow").ToMlflow(mlflow=mlflow),
    )

    assert not [r for r in caplog.records if "callbacks" in r.name]
    log = logged(Path("run"))
    rows = zip(heard(wandb, "log"), log, strict=True)
    assert [row[f"task/{e.task}"] for row, e in rows] == [e.value for e in log]
    for name, value in front.chosen.coefficients.items():
        assert wandb.summary[f"chosen/weight/{name}"] == value
    wandb.finish.assert_called_once_with()
    metrics = [call.args for call in mlflow.log_metric.call_args_list]
    ones = [value for name, value in metrics if name == "one"]
    assert ones == [e.value for e in log if e.task == "one"]
    artifacts = [Path(name) for name in heard(mlflow, "log_artifact")]
    assert artifacts
    assert all(path.exists() for path in artifacts)
