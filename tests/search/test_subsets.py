"""Searches that measure a subset of the documents: stopped, changed and broken."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parted import METRICS, SIZE, Models, lines_of, scores, search, study_of

from mergekit_map.errors import ArtifactError, EvaluationError
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, EvaluationLog, merge_key
from mergekit_map.search.loop import _last_requested


class Killed(Exception):
    """What ends a search before, or after, a line."""


def killed_at(
    line: int, *, written: bool, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """End searches at a line of the log; returns what lets them live."""
    append = EvaluationLog.append

    def stopping(self: EvaluationLog, evaluation: Evaluation) -> None:
        reached = len(list(self)) == line
        if not reached or written:
            append(self, evaluation)
        if reached:
            raise Killed("here")

    monkeypatch.setattr(EvaluationLog, "append", stopping)
    return lambda: monkeypatch.setattr(EvaluationLog, "append", append)


def logged(folder: Path) -> list[dict[str, Any]]:
    """Read the log but for seconds."""
    text = (folder / "evaluations.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def front_of(folder: Path) -> Front:
    return Front.model_validate_json((folder / "front.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True])
def test_a_search_goes_on_from_any_line_as_if_it_was_never_stopped(
    written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(12, evaluations=6, remeasure=1)
    search(study, tmp_path / "whole", Models(), monkeypatch)
    lines = logged(tmp_path / "whole")

    # Every other line is stopped at with its records, and the others without.
    for line in range(6 + written, len(lines), 2):
        folder, models = tmp_path / f"{line}", Models()
        live = killed_at(line, written=written, monkeypatch=monkeypatch)
        with pytest.raises(Killed, match="here"):
            search(study, folder, models, monkeypatch)
        live()
        search(study, folder, models, monkeypatch)

        assert logged(folder) == lines
        assert front_of(folder) == front_of(tmp_path / "whole")
        counts = [n for *_, n in models.asked]
        # What was measured on a subset before the line was written is on record.
        assert counts.count(12) == sum("sampling" in one for one in lines)


@pytest.mark.parametrize("documents", [12, {"right": 12, "loss": "all"}])
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
def test_anchors_and_the_front_are_measured_on_all_and_others_on_the_same_subset(
    exponential: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of(12, seed=1), tmp_path, Models(exponential=exponential), monkeypatch)

    lines, front = lines_of(tmp_path), front_of(tmp_path)
    for e in lines:
        assert e.whole == (e.role in {"anchor", "front"})
        assert e.n == (SIZE if e.whole else 12)
        assert e.whole or 0 < (e.sampling or 0) < (e.stderr or 0)
    for task in METRICS:
        folder = tmp_path / "samples" / task
        files = [json.loads(path.read_text()) for path in folder.iterdir()]
        ids = {tuple(file["answers"]["ids"]) for file in files}
        assert {len(one) for one in ids} == {12, SIZE}
        assert len(ids) == 2
    for merge in [*front.points, *front.anchors]:
        assert all(m.documents is None for m in merge.measured.values())
    assert front.chosen.is_measured(*METRICS)
    assert front.merges
    for merge in front.merges:
        assert {merge.measured[task].documents for task in METRICS} == {12}


def test_the_log_has_the_value_that_all_documents_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of(24, evaluations=10), tmp_path, Models(), monkeypatch)

    subset = [e for e in lines_of(tmp_path) if not e.whole]
    far = [
        (e.value - scores(tuple(e.coefficients.values()), e.task, SIZE).mean())
        / (e.sampling or 1.0)
        for e in subset
    ]
    assert len(far) > 10
    assert np.abs(far).max() < 3.5


@pytest.mark.parametrize(("before", "after"), [(12, "all"), ("all", 12), (12, 24)])
def test_another_number_of_documents_uses_what_is_there(
    before: Any, after: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"evaluations": 6, "remeasure": 1}
    search(study_of(before, **few), tmp_path, Models(), monkeypatch)
    known = {e.key for e in lines_of(tmp_path) if e.whole}
    models = Models()

    search(study_of(after, **few), tmp_path, models, monkeypatch)

    names = list(lines_of(tmp_path)[0].coefficients)
    again = {
        (merge_key(dict(zip(names, place, strict=True))), task)
        for place, task, _ in models.asked
    }
    assert not again & known
    counts = {n for *_, n in models.asked}
    assert counts <= {SIZE if after == "all" else after, SIZE}
    # Both searches have the same first design.
    latest = {e.key: e for e in lines_of(tmp_path)}
    first = [e for e in latest.values() if e.role == "design"]
    assert {e.n for e in first} <= {SIZE if after == "all" else after, SIZE}


def test_more_evaluations_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of(12, evaluations=6), tmp_path, Models(), monkeypatch)
    before = logged(tmp_path)

    search(study_of(12, evaluations=8), tmp_path, Models(), monkeypatch)

    assert logged(tmp_path)[: len(before)] == before
    assert len(logged(tmp_path)) > len(before)


def test_without_the_scores_of_references_all_documents_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(12, evaluations=6)
    search(study, tmp_path, Models(), monkeypatch)
    path, models = tmp_path / "evaluations.jsonl", Models()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:8]))
    shutil.rmtree(tmp_path / "samples")

    search(study, tmp_path, models, monkeypatch)

    assert {n for *_, n in models.asked} == {SIZE}


def test_scores_that_nobody_wrote_are_no_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of(12, evaluations=6), tmp_path, Models(), monkeypatch)
    for path in (tmp_path / "samples" / "right").iterdir():
        content = json.loads(path.read_text())
        content["answers"]["ids"][-1] = 10**15
        path.write_text(json.dumps(content))
    models = Models()

    search(study_of(12, evaluations=8), tmp_path, models, monkeypatch)

    assert {n for _, task, n in models.asked if task == "right"} == {SIZE}
    assert {n for _, task, n in models.asked if task == "loss"} == {12, SIZE}


def broken(kind: str) -> Callable[..., Any]:
    """Answer otherwise than models do away from the anchors."""

    def answer(coefficients: Any, task: str, values: np.ndarray) -> Any:
        if kind == "none":
            return None if task == "loss" else values
        inside = 0 < coefficients["x"] < 1 and coefficients["x"] > coefficients["y"]
        if task == "loss" and inside:
            if kind == "raises":
                raise EvaluationError("no memory left")
            values = np.where(np.arange(len(values)) == 0, float(kind), values)
        return values

    return answer


@pytest.mark.parametrize("kind", ["nan", "inf", "raises"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning:numpy")
def test_scores_that_are_no_numbers_are_on_record_as_failures(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, models = study_of(12, evaluations=8), Models(said=broken(kind))

    search(study, tmp_path, models, monkeypatch)

    failed = [e for e in lines_of(tmp_path) if e.failed]
    assert {e.task for e in failed} == {"loss"}
    assert {e.error for e in failed} == (
        {"no memory left"} if kind == "raises" else {None}
    )
    again = Models(said=broken(kind))
    search(study, tmp_path, again, monkeypatch)
    # What raised is tried again, what scored something is not.
    assert kind == "raises" or again.asked == []


def test_a_task_without_scores_is_refused_with_its_first_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(said=broken("none"))

    with pytest.raises(EvaluationError, match=r"'loss' gave no score .*: 12'"):
        search(study_of(12), tmp_path, models, monkeypatch)

    assert len(models.asked) == 2


def test_a_constant_task_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(study_of(12), tmp_path, Models(constant=True), monkeypatch)

    assert {e.value for e in lines_of(tmp_path)} == {1.0}


@pytest.mark.parametrize("size", [2, 12])
def test_few_documents_are_all_measured(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(12, evaluations=6, remeasure=0)

    search(study, tmp_path, Models(size=size), monkeypatch)

    assert all(e.whole and e.n == size for e in lines_of(tmp_path))


def test_a_merge_that_the_front_measured_ends_what_rounds_ask_of_it() -> None:
    def line(role: Any, x: float) -> Evaluation:
        return Evaluation(
            coefficients={"x": x},
            task="loss",
            role=role,
            value=1.0,
            stderr=0.1,
            n=96,
            seconds=1.0,
            merge="m",
            definition="d",
        )

    lines = [line("refinement", 0.2), line("refinement", 0.7), line("front", 0.2)]
    asked = {merge_key({"x": 0.2}), merge_key({"x": 0.7})}

    assert _last_requested(lines, asked) == 1
    # A merge that the front measured first is one that a later round need not.
    assert _last_requested(lines[1:], asked) == 1


OLD = {"of": 96, "documents": list(range(12)), "stderr_of_all": 0.1}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (OLD, r"jsonl:1: .*'documents' drew other documents for each merge"),
        ({"sampling": -1.0}, r"jsonl:1: .*sampling"),
        ({"sampling": "0.1"}, r"jsonl:1: .*sampling"),
    ],
)
def test_lines_of_the_documents_that_left_or_that_nobody_wrote_are_refused(
    change: dict[str, Any], match: str, tmp_path: Path
) -> None:
    line = Evaluation(
        coefficients={"x": 0.5},
        task="loss",
        role="design",
        value=1.0,
        stderr=0.1,
        n=12,
        seconds=1.0,
        merge="m",
        definition="d",
        sampling=0.05,
    )
    content = json.loads(json.dumps(vars(line) | change))
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(content) + "\n")

    with pytest.raises(ArtifactError, match=match) as caught:
        lines_of(tmp_path)
    assert "\n" not in str(caught.value)
