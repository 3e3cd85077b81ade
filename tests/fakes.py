"""What stands in for models in the tests of a study: functions that are known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, EvaluationLog, open_log, read_log
from mergekit_map.results.records import read_record, write_record
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.finish import found_front
from mergekit_map.search.loop import run_study
from mergekit_map.search.study import Evaluator, Study, StudyResult
from mergekit_map.types import Measurement, Metric

LOSS = Metric(higher_is_better=False, lower=None, upper=None)
IDEAL = {"near_a": (0.9, 0.2), "near_b": (0.2, 0.7)}


def make_study(
    names: Sequence[str],
    tasks: Collection[str] | Mapping[str, Metric],
    anchors: Sequence[str] | None = None,
    metric: Metric = LOSS,
    select: SelectSpec | None = None,
    documents: Mapping[str, Any] | None = None,
    **search: Any,
) -> Study:
    """Search coefficients from 0 to 1 for tasks that are alike, or have own metrics.

    ``anchors`` are the base, models by their names, and the soup; all by default.
    """
    places = {
        "base": dict.fromkeys(names, 0.0),
        **{name: {other: float(other == name) for other in names} for name in names},
        "soup": dict.fromkeys(names, 1 / len(names)),
    }
    return Study(
        bounds=dict.fromkeys(names, (0.0, 1.0)),
        anchors={label: places[label] for label in anchors or places},
        tasks=tasks if isinstance(tasks, Mapping) else dict.fromkeys(tasks, metric),
        definitions={task: task for task in tasks},
        merge="m",
        search=SearchSpec(**search),
        select=select or SelectSpec(),
        documents=documents or {},
    )


def line(
    coefficients: Mapping[str, float], task: str, value: float = 1.0, **more: Any
) -> Evaluation:
    """Return a line of the log of such a study, of the design unless it says more."""
    known: dict[str, Any] = {"role": "design", "stderr": None, "n": 1, "seconds": 0.0}
    known |= {"merge": "m", "definition": task, **more}
    return Evaluation(coefficients=coefficients, task=task, value=value, **known)


class Recorder:
    """An evaluator that keeps what it was asked, answered or not."""

    def __init__(self, answer: Evaluator) -> None:
        self.answer = answer
        self.calls: list[tuple[tuple[float, ...], str]] = []  # coefficients, task

    def __call__(self, coefficients: Mapping[str, float], task: str) -> Measurement:
        self.calls.append((tuple(coefficients.values()), task))
        return self.answer(coefficients, task)


def bowls(coefficients: Mapping[str, float], task: str) -> Measurement:
    """Measure the squared distance to a point per task, which a quadratic fits.

    The front is the line between the two points.
    """
    x = np.array(list(coefficients.values()))
    return Measurement(float(np.sum((x - IDEAL[task]) ** 2)) + 1, 0.001, 10)


def run(study: Study, path: Path, evaluate: Evaluator) -> StudyResult:
    """Search in a folder, as the pipeline does, and keep the front."""
    path.mkdir(exist_ok=True)
    with open_log(RunFolder(path)) as log:
        result = run_study(study, evaluate, log)
        write_record(path / "front.json", found_front(study, result, log))
    return result


def logged(folder: Path = Path()) -> list[Evaluation]:
    """Read the log of a search."""
    return list(read_log(folder / "evaluations.jsonl"))


def changed(evaluation: Evaluation, **keys: Any) -> Evaluation:
    """Copy a measurement with other values of some keys."""
    return evaluation.model_copy(update=keys)


def front_of(folder: Path = Path()) -> Front:
    """Read the front that a search wrote."""
    return read_record(folder / "front.json", Front, "front")


@contextmanager
def killed_at(line: int, *, written: bool = False) -> Iterator[None]:
    """End a search at a line of the log, before or after it is written."""
    append = EvaluationLog.append

    def stopping(self: EvaluationLog, evaluation: Evaluation) -> None:
        reached = len(list(self)) == line
        if not reached or written:
            append(self, evaluation)
        if reached:
            raise KeyboardInterrupt("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvaluationLog, "append", stopping)
        yield
