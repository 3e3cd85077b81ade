from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fakes import line

from mergekit_map.errors import ArtifactError
from mergekit_map.results.log import Evaluation, open_log, read_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.types import Measurement


def evaluation(x: float, **more: Any) -> Evaluation:
    known = {"value": 1.5, "stderr": 0.01, "n": 3, "seconds": 0.25, **more}
    return line({"a": x, "b": 0.1}, "code", **known)


PATH = Path("evaluations.jsonl")


def write(*evaluations: Evaluation) -> None:
    with open_log(RunFolder(Path())) as log:
        for each in evaluations:
            log.append(each)


def test_what_is_appended_is_read_again_exactly() -> None:
    written = [
        evaluation(0.1 + 0.2),
        evaluation(1 / 3, stderr=None),
        evaluation(0.5, details={"perplexity": 4.4}, error="RuntimeError: no"),
    ]
    write(*written)

    assert list(read_log(PATH)) == written
    write(written[0])  # as who copies lines does: it is no second measurement
    assert list(read_log(PATH)) == written


def test_a_side_reading_that_no_line_can_hold_is_left_out() -> None:
    measured = Measurement(200.0, None, 1, details={"perplexity": 7e86, "more": 2})
    place = {"coefficients": {}, "task": "t", "merge": "m", "definition": "d"}

    assert Evaluation.of(measured, **place).details == {"more": 2}


def test_a_line_is_whole_when_it_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = [], os.fsync

    def listening(file: int) -> None:
        if os.path.samestat(os.fstat(file), PATH.stat()):
            synced.append(PATH.read_bytes().count(b"\n"))
        sync(file)

    monkeypatch.setattr(os, "fsync", listening)
    with open_log(RunFolder(Path())) as log:
        log.append(evaluation(0.1))
        log.append(evaluation(0.2))
    assert synced == [1, 2]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ("{}", "jsonl:1: not an evaluation.*remove this"),
        ('{"version": 9}', "version 9, which is not read"),
    ],
)
def test_a_damaged_line_is_named_and_left_as_it_is(damaged: str, message: str) -> None:
    PATH.write_text(f'{damaged}\n{{"torn')

    with pytest.raises(ArtifactError, match=message), open_log(RunFolder(Path())):
        pass
    assert PATH.read_text() == f'{damaged}\n{{"torn'
