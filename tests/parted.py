"""Searches that measure a subset of the documents, of known functions with scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import run

from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.evaluation.evaluator import MergeEvaluator, Worker
from mergekit_map.results.log import Evaluation, read_log
from mergekit_map.search import measure
from mergekit_map.search.study import Study, StudyResult
from mergekit_map.types import Answers, Measure, Measurement, Metric

SIZE = 96
METRICS = {
    "right": Metric(higher_is_better=True, lower=0.0, upper=1.0),
    "loss": Metric(higher_is_better=False, lower=None, upper=None),
}
BASE, ONE, OTHER = {"x": 0.0, "y": 0.0}, {"x": 1.0, "y": 0.0}, {"x": 0.0, "y": 1.0}


def study_of(documents: Any = 12, **spec: Any) -> Study:
    """Search two coefficients; ``documents`` is of both tasks, or by task."""
    wishes = documents if isinstance(documents, dict) else None
    kinds = {"evaluations": 12, "remeasure": 2, "surrogate": "regularized"}
    return Study(
        bounds={"x": (0.0, 1.0), "y": (0.0, 1.0)},
        anchors={"base": BASE, "one": ONE, "other": OTHER},
        tasks=METRICS,
        definitions={task: f"definition of {task}" for task in METRICS},
        merge="m",
        search=SearchSpec(**{**kinds, **spec}),
        select=SelectSpec(),
        documents=wishes or dict.fromkeys(METRICS, documents),
    )


@dataclass
class Models:
    """Merges whose documents answer by a formula, and what they were asked."""

    size: int = SIZE
    exponential: bool = False
    constant: bool = False
    said: Callable[[Mapping[str, float], str, np.ndarray], Any] | None = None
    asked: list[tuple[tuple[float, ...], str, int]] = field(default_factory=list)

    def __call__(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Merge."""
        return {task: _Measured(self, dict(coefficients), task) for task in METRICS}


@dataclass
class _Measured:
    models: Models
    coefficients: dict[str, float]
    task: str

    @property
    def size(self) -> int:
        return self.models.size

    def __call__(self, documents: Sequence[int] | None = None) -> Measurement:
        models, place = self.models, tuple(self.coefficients.values())
        ids = range(models.size) if documents is None else documents
        models.asked.append((place, self.task, len(ids)))
        values = np.ones(models.size)
        if not models.constant:
            values = scores(place, self.task, models.size)
        values = values[list(ids)]
        if models.said is not None:
            values = models.said(self.coefficients, self.task, values)
        if values is None:
            return Measurement(0.5 + place[0] / 4, None, 1)
        exponential = models.exponential and self.task == "loss"
        value, n = float(values.mean()), len(ids)
        stderr = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None
        if exponential:
            value, stderr = float(np.exp(value)), None
        answers = Answers(
            ids=tuple(ids),
            values=tuple(values.tolist()),
            weights=(1.0,) * n,
            exponential=exponential,
        )
        samples = tuple({"document": i} for i in ids)
        return Measurement(value, stderr, n, samples=samples, answers=answers)


def scores(place: tuple[float, ...], task: str, size: int) -> Any:
    """Score all documents."""
    x, y = place
    rng = np.random.default_rng(len(task))
    level, slopes, bend = rng.normal(size=size), rng.normal(size=(size, 2)), 0.3
    ideal = (0.8, 0.3) if task == "right" else (0.2, 0.7)
    far = (x - ideal[0]) ** 2 + (y - ideal[1]) ** 2
    own = 0.4 * slopes @ np.array([x, y]) + bend * np.sin(7 * x + 5 * y + 9 * level)
    if task == "right":
        margins = 0.5 + level - 1.5 * far + own
        return (margins > 0).astype(float)
    return 3 + level / 2 + far + own / 4


@dataclass
class Clock:
    """Tells a time that passes by 1 for every document."""

    models: Models

    def perf_counter(self) -> float:
        return float(sum(n for *_, n in self.models.asked))


def search(
    study: Study, folder: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> StudyResult:
    """Search as the pipeline does, with its evaluator and its folder of samples."""
    monkeypatch.setattr(measure, "time", Clock(models))
    evaluator = MergeEvaluator(
        Worker(nullcontext(models)), folder / "samples", study.definitions
    )
    return run(study, folder, evaluator)


def lines_of(folder: Path) -> list[Evaluation]:
    return list(read_log(folder / "evaluations.jsonl"))
