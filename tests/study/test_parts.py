"""Searches that ask a part of the documents: stopped, changed and broken."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parted import METRICS, SIZE, Models, lines_of, search, study_of

from mergekit_map.errors import ArtifactError, EvaluationError
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, merge_key
from mergekit_map.results.opened_log import EvaluationLog
from mergekit_map.study import dividing
from mergekit_map.study.running import _last_asked
from mergekit_map.study.study import Study


class Killed(Exception):
    """What ends a search before, or after, a line."""


def killed_at(
    line: int, *, written: bool, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """End searches at a line of the log; gives what lets them live."""
    append = EvaluationLog.append

    def stopping(self: EvaluationLog, evaluation: Evaluation) -> None:
        reached = len(list(self)) == line
        if not reached or written:
            append(self, evaluation)
        if reached:
            raise Killed("here")

    monkeypatch.setattr(EvaluationLog, "append", stopping)
    return lambda: monkeypatch.setattr(EvaluationLog, "append", append)


def said_of(folder: Path) -> list[dict[str, Any]]:
    """Read the log but for seconds."""
    text = (folder / "evaluations.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def front_of(folder: Path) -> Front:
    return Front.model_validate_json((folder / "front.json").read_text())


def topping_up(monkeypatch: pytest.MonkeyPatch, **spec: Any) -> Study:
    """Ask more documents of earlier merges sooner than a search would."""
    monkeypatch.setattr(dividing, "_CLEARLY", 0.5)
    return study_of(8, evaluations=7, surrogate="residual_gp", **spec)


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True])
def test_a_search_goes_on_from_any_line_as_if_it_was_never_stopped(
    written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = topping_up(monkeypatch)
    search(study, tmp_path / "whole", Models(), monkeypatch)
    lines = said_of(tmp_path / "whole")
    keys = Counter(e.key for e in lines_of(tmp_path / "whole") if not e.whole)
    assert max(keys.values()) >= 2

    # Before the first part there is nothing that this adds to other tests; every other
    # line is stopped at with its records, and the others without.
    for line in range(6 + written, len(lines), 2):
        folder, models = tmp_path / f"{line}", Models()
        live = killed_at(line, written=written, monkeypatch=monkeypatch)
        with pytest.raises(Killed, match="here"):
            search(study, folder, models, monkeypatch)
        live()
        search(study, folder, models, monkeypatch)

        assert said_of(folder) == lines
        assert front_of(folder) == front_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("documents", [2, 12, "auto", {"right": 12, "loss": "all"}])
def test_a_finished_search_measures_nothing_again(
    documents: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(documents)
    search(study, tmp_path, Models(), monkeypatch)
    before, models = (tmp_path / "front.json").read_text(), Models()

    search(study, tmp_path, models, monkeypatch)

    assert models.asked == []
    assert (tmp_path / "front.json").read_text() == before


@pytest.mark.parametrize("exponential", [False, True])
def test_what_is_shown_and_chosen_was_measured_on_all(
    exponential: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Parts are so small that some of them are empty.
    search(study_of(2, seed=1), tmp_path, Models(exponential=exponential), monkeypatch)

    lines, front = lines_of(tmp_path), front_of(tmp_path)
    whole = {e.key for e in lines if e.whole}
    parts = [e for e in lines if not e.whole]
    assert 0 in {e.n for e in parts}
    assert all(e.of == SIZE and e.n == len(e.documents or ()) for e in parts)
    shown = [
        *front.anchors,
        front.chosen,
        *(front.points[i] for i in front.recommended),
    ]
    for merge in shown:
        for task in METRICS:
            assert (merge_key(merge.coefficients), task) in whole
            assert merge.measured[task].value is not None
            assert merge.measured[task].documents is None
    estimated = [m for m in front.known if m.estimated is not None]
    assert estimated
    for merge in estimated:
        assert merge.estimated is not None
        for task in METRICS:
            key = merge_key(merge.coefficients), task
            [*_, last] = [e for e in parts if e.key == key]
            assert merge.estimated[task].documents == last.n
            assert merge.measured[task].value is None
    losses = [e.value for e in lines if e.task == "loss"]
    # An empty part foresees a value like all others, and no logarithm of it.
    assert not exponential or min(losses) > 15


@pytest.mark.slow
def test_all_after_a_part_measures_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of(12), tmp_path, Models(), monkeypatch)
    models = Models()

    search(study_of("all"), tmp_path, models, monkeypatch)

    assert {n for *_, n in models.asked} == {SIZE}
    anchors = {(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)}
    assert not anchors & {place for place, *_ in models.asked}
    assert all(m.estimated is None for m in [*front_of(tmp_path).points])


@pytest.mark.slow
def test_a_part_after_all_uses_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of("all"), tmp_path, Models(), monkeypatch)
    models = Models()

    search(study_of(12), tmp_path, models, monkeypatch)

    assert sum(n for *_, n in models.asked) <= 3 * len(METRICS) * SIZE
    assert len(lines_of(tmp_path)) <= 34 + 3 * len(METRICS)


@pytest.mark.slow
def test_more_evaluations_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(topping_up(monkeypatch), tmp_path, Models(), monkeypatch)
    before, study = said_of(tmp_path), topping_up(monkeypatch)
    more = study_of(8, evaluations=9, surrogate="residual_gp")

    search(more, tmp_path, Models(), monkeypatch)

    assert said_of(tmp_path)[: len(before)] == before
    assert len(said_of(tmp_path)) > len(before)
    assert study.search.evaluations == 7


@pytest.mark.slow
def test_without_the_answers_all_documents_are_measured_where_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(12)
    search(study, tmp_path, Models(), monkeypatch)
    path, models = tmp_path / "evaluations.jsonl", Models()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:9]))
    shutil.rmtree(tmp_path / "samples")

    search(study, tmp_path, models, monkeypatch)

    # The first of each task is asked everything; it is what the next are foreseen by.
    assert [n for *_, n in models.asked[:1]] == [SIZE]
    assert lines_of(tmp_path)[9].whole
    assert not all(e.whole for e in lines_of(tmp_path)[11:])


def broken(kind: str) -> Callable[..., Any]:
    """Answer otherwise than models do away from the anchors."""

    def said(coefficients: Any, task: str, values: np.ndarray) -> Any:
        if kind == "none":
            return None if task == "loss" else values
        inside = 0 < coefficients["x"] < 1 and coefficients["x"] > coefficients["y"]
        if task == "loss" and inside:
            if kind == "raises":
                raise EvaluationError("no memory left")
            values = np.where(np.arange(len(values)) == 0, float(kind), values)
        return values

    return said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nan", "inf", "-inf", "1e60", "raises", "none"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning:numpy")
def test_answers_that_are_no_numbers_are_on_record_as_failures(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, models = study_of(12), Models(said=broken(kind))

    search(study, tmp_path, models, monkeypatch)

    lines = lines_of(tmp_path)
    if kind == "none":
        assert all(e.whole for e in lines if e.task == "loss")
    elif kind != "1e60":
        failed = [e for e in lines if e.failed]
        assert {e.task for e in failed} == {"loss"}
        assert {e.error for e in failed} == (
            {"no memory left"} if kind == "raises" else {None}
        )
    again = Models(said=broken(kind))
    search(study, tmp_path, again, monkeypatch)
    # What raised is tried again, what said something is not.
    assert kind == "raises" or again.asked == []


def test_a_constant_task_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(study_of("auto"), tmp_path, Models(constant=True), monkeypatch)

    assert {e.value for e in lines_of(tmp_path)} == {1.0}


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 5, 8])
def test_few_documents_are_all_asked(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of("auto"), tmp_path, Models(size=size), monkeypatch)

    assert all(e.whole and e.n == size for e in lines_of(tmp_path))


WRONG: dict[str, dict[str, Any]] = {
    "beyond": {"documents": [0, 96], "n": 2},
    "not rising": {"documents": [3, 3], "n": 2},
    "falling": {"documents": [4, 3], "n": 2},
    "negative": {"documents": [-1, 3], "n": 2},
    "another number": {"n": 5, "documents": [1, 2]},
    "none": {"documents": None, "n": 2},
    "of 0": {"of": 0},
    "of nothing": {"of": None, "documents": [1], "n": 1},
    "of text": {"of": "96"},
    "negative error": {"stderr_of_all": -1.0},
}


@pytest.mark.parametrize("name", WRONG)
def test_lines_that_nobody_wrote_are_refused_in_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of(12, evaluations=6), tmp_path, Models(), monkeypatch)
    path = tmp_path / "evaluations.jsonl"
    lines = path.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if '"of"' in line)
    lines[place] = json.dumps({**json.loads(lines[place]), **WRONG[name]})
    path.write_text("\n".join(lines) + "\n")

    with pytest.raises(ArtifactError, match=rf"jsonl:{place + 1}: ") as caught:
        lines_of(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_answers_of_other_documents_are_left_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of(12, evaluations=6), tmp_path, Models(), monkeypatch)
    paths = sorted((tmp_path / "samples" / "right").iterdir())
    for index, path in enumerate(paths):
        content = json.loads(path.read_text())
        if content["answers"]["probabilities"] is None and index % 2:
            content["answers"]["ids"][-1] = 10**15
            path.write_text(json.dumps(content))
    path = tmp_path / "evaluations.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "of" in line:
            line["of"] = 10**15
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    search(study_of(12, evaluations=8), tmp_path, Models(), monkeypatch)

    assert all(math.isfinite(e.value) for e in lines_of(tmp_path))


def test_a_merge_that_the_front_measured_ends_what_rounds_ask_of_it() -> None:
    def line(role: Any, x: float, n: int | None) -> Evaluation:
        some = {} if n is None else {"of": 96, "documents": tuple(range(n))}
        return Evaluation(
            coefficients={"x": x},
            task="loss",
            role=role,
            value=1.0,
            stderr=0.1,
            n=n or 96,
            seconds=1.0,
            merge="m",
            definition="d",
            **some,
        )

    lines = [line("refinement", 0.2, 8), line("refinement", 0.7, 8)]
    lines.append(line("front", 0.2, None))
    once, more = merge_key({"x": 0.2}), merge_key({"x": 0.7})

    assert _last_asked(lines, {once: 1, more: 1}) == 1
    # It is enough for the second time that a round asks, which must not go on for ever.
    assert _last_asked(lines, {once: 2, more: 1}) == 2
