"""Searches that measure a subset of the documents, or stay within a budget of hours.

Stopped, changed and broken; the documents of known functions have scores.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
from fakes import changed, front_of, killed_at, logged, make_study, run
from runs import change_json, read, set_at, untimed

from mergekit_map.errors import EvaluationError
from mergekit_map.evaluation import evaluator
from mergekit_map.evaluation.evaluator import MergeEvaluator, Worker
from mergekit_map.results.log import merge_key
from mergekit_map.search import measure
from mergekit_map.search.loop import can_go_on
from mergekit_map.search.study import Study
from mergekit_map.types import Answers, Measure, Measurement, MeasurementRequest, Metric

SIZE = 96
Search: TypeAlias = Callable[..., "Models"]
METRICS = {
    "right": Metric(higher_is_better=True, lower=0.0, upper=1.0),
    "loss": Metric(higher_is_better=False, lower=None, upper=None),
}


def study_of(documents: Any = 12, **spec: Any) -> Study:
    """Search two coefficients; ``documents`` is of both tasks, or by task."""
    if not isinstance(documents, dict):
        documents = dict.fromkeys(METRICS, documents)
    spec = {"evaluations": 12, "remeasure": 2, "surrogate": "regularized", **spec}
    return make_study("xy", METRICS, ("base", "x", "y"), documents=documents, **spec)


@dataclass
class Models:
    """Merges whose documents answer by a formula, and what they were asked."""

    exponential: bool = False
    said: Callable[[Mapping[str, float], str, np.ndarray], Any] | None = None
    asked: list[tuple[tuple[float, ...], str, int]] = field(default_factory=list)

    @property
    def counts(self) -> list[int]:
        """List how many documents each measurement was of."""
        return [n for *_, n in self.asked]

    def __call__(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Merge."""
        return {task: partial(self._measure, coefficients, task) for task in METRICS}

    def _measure(
        self, merge: Any, task: str, documents: Sequence[int] | None = None
    ) -> Measurement:
        place = tuple(merge.values())
        ids = range(SIZE) if documents is None else documents
        self.asked.append((place, task, len(ids)))
        values = scores(place, task)[list(ids)]
        if self.said is not None:
            values = self.said(merge, task, values)
        if values is None:
            return Measurement(0.5 + place[0] / 4, None, 1)
        exponential = self.exponential and task == "loss"
        value, n = float(values.mean()), len(ids)
        stderr = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None
        if exponential:
            value, stderr = float(np.exp(value)), None
        known = (tuple(ids), tuple(values.tolist()), (1.0,) * n)
        answers = Answers(*known, exponential=exponential)
        samples = tuple({"document": i} for i in ids)
        return Measurement(value, stderr, n, samples=samples, answers=answers)


def scores(place: tuple[float, ...], task: str) -> Any:
    """Score all documents."""
    x, y = place
    rng = np.random.default_rng(len(task))
    level, slopes, bend = rng.normal(size=SIZE), rng.normal(size=(SIZE, 2)), 0.3
    ideal = (0.8, 0.3) if task == "right" else (0.2, 0.7)
    far = (x - ideal[0]) ** 2 + (y - ideal[1]) ** 2
    own = 0.4 * slopes @ np.array([x, y]) + bend * np.sin(7 * x + 5 * y + 9 * level)
    if task == "right":
        return (0.5 + level - 1.5 * far + own > 0).astype(float)
    return 3 + level / 2 + far + own / 4


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Search as the pipeline does, with its evaluator and its folder of samples.

    Returns the models that were asked, in a folder of its own unless told otherwise.
    """

    def searched(
        study: Study,
        models: Models | None = None,
        folder: Path = tmp_path,
        kind: type[MergeEvaluator] = MergeEvaluator,
    ) -> Models:
        models = models or Models()
        # A time that passes by 1 for every document.
        clock = SimpleNamespace(perf_counter=lambda: float(sum(models.counts)))
        monkeypatch.setattr(measure, "time", clock)
        monkeypatch.setattr(evaluator, "time", clock)
        worker = Worker(nullcontext(models))
        run(study, folder, kind(worker, folder / "samples", study.definitions))
        return models

    return searched


@pytest.mark.slow
def test_a_search_goes_on_from_any_line_as_if_never_stopped(search: Search) -> None:
    study = study_of(12, evaluations=6, remeasure=1)
    search(study, Models(), Path("whole"))
    lines = untimed(Path("whole"))

    # Some lines are stopped at with their records, and others without.
    for line in range(6, len(lines), 3):
        folder, models = Path(f"{line}"), Models()
        with (
            killed_at(line, written=line % 2 == 1),
            pytest.raises(KeyboardInterrupt, match="killed"),
        ):
            search(study, models, folder)
        search(study, models, folder)

        assert untimed(folder) == lines
        assert front_of(folder) == front_of(Path("whole"))
        # What was measured on a subset before the line was written is on record.
        assert models.counts.count(12) == sum("sampling" in one for one in lines)


def test_a_reference_point_without_scores_is_measured_again(search: Search) -> None:
    search(study_of(evaluations=8))
    shutil.rmtree("samples")
    models = search(study_of(evaluations=10))

    assert [asked[2] for asked in models.asked if asked[0] == (0, 0)] == [SIZE, SIZE]
    assert models.counts.count(12) >= 4


@pytest.mark.parametrize("exponential", [False, True])
def test_anchors_and_the_front_are_measured_on_all_and_others_on_the_same_subset(
    exponential: bool, search: Search
) -> None:
    search(study_of(12, seed=1, evaluations=8), Models(exponential=exponential))

    lines, front = logged(), front_of()
    for e in lines:
        assert e.whole == (e.role in {"anchor", "front"})
        assert e.n == (SIZE if e.whole else 12)
        if not e.whole:
            assert 0 < e.sampling < e.stderr
            value = scores(tuple(e.coefficients.values()), e.task).mean()
            if exponential and e.task == "loss":
                value = np.exp(value)
            assert abs(e.value - value) < 3.5 * e.sampling
    for task in METRICS:
        files = [read(path) for path in Path("samples", task).iterdir()]
        ids = {tuple(file["answers"]["ids"]) for file in files}
        assert {len(one) for one in ids} == {12, SIZE}
        assert len(ids) == 2
    for merge in [*front.points, *front.anchors]:
        assert all(m.documents is None for m in merge.measured.values())
    assert front.chosen.is_measured(*METRICS)
    assert front.merges
    for merge in front.merges:
        assert {merge.measured[task].documents for task in METRICS} == {12}


def test_workers_hear_of_coming_merges_whatever_their_documents(search: Search) -> None:
    counts: dict[Any, list[int]] = {}
    for documents in ("all", 12, SIZE):

        class Ahead(MergeEvaluator):
            found = counts.setdefault(documents, [])

            def expect(self, ahead: Sequence[MeasurementRequest]) -> None:
                self.found.append(len(ahead))

        asked = study_of(documents, evaluations=6, refine=False, remeasure=0)
        search(asked, Models(), Path(f"{documents}"), Ahead)

    assert counts[SIZE] == counts[12] == counts["all"] != []


@pytest.mark.parametrize(("before", "after"), [(12, "all"), ("all", 12), (12, 24)])
def test_another_number_of_documents_uses_what_is_there(
    before: Any, after: Any, search: Search
) -> None:
    few = {"evaluations": 6, "remeasure": 1}
    search(study_of(before, **few))
    known = {e.key for e in logged() if e.whole}

    models = search(study_of(after, **few))

    names = list(logged()[0].coefficients)
    again = {
        (merge_key(dict(zip(names, place, strict=True))), task)
        for place, task, _ in models.asked
    }
    assert not again & known
    assert {*models.counts} <= {SIZE if after == "all" else after, SIZE}
    # Both searches have the same first design.
    first = [e for e in {e.key: e for e in logged()}.values() if e.role == "design"]
    assert {e.n for e in first} <= {SIZE if after == "all" else after, SIZE}


def test_scores_that_nobody_wrote_are_no_reference(search: Search) -> None:
    search(study_of(12, evaluations=6))
    for path in Path("samples", "right").iterdir():
        change_json(path, lambda record: set_at(record, 10**15, "answers", "ids", -1))
    before = untimed(Path())

    models = search(study_of(12, evaluations=8))

    assert {n for _, task, n in models.asked if task == "right"} == {SIZE}
    assert {n for _, task, n in models.asked if task == "loss"} == {12, SIZE}
    assert untimed(Path())[: len(before)] == before


def test_scores_that_are_no_numbers_are_on_record_as_failures(search: Search) -> None:
    def answer(coefficients: Any, task: str, values: np.ndarray) -> Any:
        inside = 0 < coefficients["x"] < 1 and coefficients["x"] > coefficients["y"]
        broken = task == "loss" and inside  # away from the anchors
        return np.where((np.arange(len(values)) == 0) & broken, np.nan, values)

    study = study_of(12, evaluations=8)
    with np.errstate(invalid="ignore"):
        search(study, Models(said=answer))

    failed = [e for e in logged() if e.failed]
    assert {(e.task, e.error) for e in failed} == {("loss", None)}
    assert search(study, Models(said=answer)).asked == []


def test_a_task_without_scores_is_refused_with_its_first_merge(search: Search) -> None:
    models = Models(said=lambda _, task, values: None if task == "loss" else values)

    with pytest.raises(EvaluationError, match=r"'loss' gave no score .*: 12'"):
        search(study_of(12), models)

    assert len(models.asked) == 2


# Anchors and a first design of five, all measured on all documents.
_FIRST = 5 * len(METRICS) * SIZE


@pytest.mark.slow
@pytest.mark.parametrize("documents", [24, "all"])
def test_a_search_stays_within_its_budget(documents: Any, search: Search) -> None:
    budget = 1750
    study = study_of(documents, evaluations=40, refine=True, hours=budget / 3600)

    # The clock of these models counts documents.
    assert budget - 3 * len(METRICS) * SIZE < sum(search(study).counts) <= budget
    assert [e.role for e in logged()].count("front") >= len(METRICS)
    assert search(study).asked == []
    assert not front_of().ending.trusted


def test_a_budget_does_not_count_what_was_taken_over(search: Search) -> None:
    study = study_of("all", hours=10 * _FIRST / 3600)
    search(study_of("all", hours=_FIRST / 3600))
    lines = logged()
    assert can_go_on(study, lines)
    many = [e for e in lines for _ in range(12)]

    assert not can_go_on(study, many)
    assert can_go_on(study, [changed(e, taken="0" * 16) for e in many])
