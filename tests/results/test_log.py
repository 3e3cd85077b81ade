from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from mergekit_map.errors import ArtifactError
from mergekit_map.results.log import Evaluation, open_log, read_log


def evaluation(x: float, value: float = 1.5, **more: object) -> Evaluation:
    given: dict[str, object] = {
        "coefficients": {"a": x, "b": 0.1},
        "task": "code",
        "role": "design",
        "value": value,
        "stderr": 0.01,
        "n": 3,
        "seconds": 0.25,
        "merge": "m",
        "definition": "d",
        **more,
    }
    return Evaluation(**given)  # type: ignore[arg-type]


def test_what_is_appended_is_read_again_exactly(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    written = [
        evaluation(0.1 + 0.2),
        evaluation(1 / 3, stderr=None),
        evaluation(0.5, details={"perplexity": 4.4}, error="RuntimeError: no"),
        evaluation(0.7, gradient={"a": -0.1 - 0.2, "b": 1e-300}),
    ]
    with open_log(path) as log:
        for item in written:
            log.append(item)

    assert list(read_log(path)) == written


def test_a_line_is_whole_when_it_is_forced_onto_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "evaluations.jsonl", []
    sync = os.fsync

    def listening(file: int) -> None:
        if os.path.samestat(os.fstat(file), path.stat()):
            synced.append(path.read_bytes().count(b"\n"))
        sync(file)

    monkeypatch.setattr(os, "fsync", listening)
    with open_log(path) as log:
        log.append(evaluation(0.1))
        assert synced == [1]
        log.append(evaluation(0.2))
        assert synced == [1, 2]


def test_a_line_has_a_gradient_only_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    with open_log(path) as log:
        log.append(evaluation(0.1))
        log.append(evaluation(0.2, gradient={"a": math.nan, "b": 2.0}))

    plain, other = path.read_text().splitlines()
    assert "gradient" not in json.loads(plain)
    assert json.loads(other)["gradient"] == {"a": None, "b": 2.0}
    gradient = list(read_log(path))[1].gradient
    assert gradient is not None
    assert math.isnan(gradient["a"])


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_a_line_cut_short_by_a_kill_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "evaluations.jsonl"
    with open_log(path) as log:
        log.append(evaluation(0.1))
        log.append(evaluation(0.2))
    path.write_bytes(path.read_bytes()[:-cut])

    with open_log(path) as log:
        assert [e.coefficients["a"] for e in log] == [0.1]
        log.append(evaluation(0.3))

    assert [e.coefficients["a"] for e in read_log(path)] == [0.1, 0.3]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    with open_log(path) as log:
        log.append(evaluation(0.1))
    path.write_text("{}\n" + path.read_text())

    with pytest.raises(ArtifactError, match=r"jsonl:1: not an evaluation.*remove this"):
        list(read_log(path))


def test_a_log_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    with open_log(path) as log:
        log.append(evaluation(0.1))
    path.write_text(path.read_text().replace('"version": 1', '"version": 9'))

    with pytest.raises(ArtifactError, match="version 9, this is version 1"):
        list(read_log(path))


def test_one_search_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    with (
        open_log(path),
        pytest.raises(ArtifactError, match="another search is writing"),
        open_log(path),
    ):
        pass
    with open_log(path) as log:
        assert list(log) == []
