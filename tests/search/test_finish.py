"""What ``front.json`` holds besides the front."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import line, make_study
from scipy.stats import qmc
from surrogate_data import fit

from mergekit_map.results.front import UNKNOWN, Front, Reading
from mergekit_map.results.log import Evaluation
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import write_samples
from mergekit_map.search.finish import found_front
from mergekit_map.search.study import StudyResult
from mergekit_map.surrogates.links import Link
from mergekit_map.types import Answers, Measurement, Metric
from mergekit_map.workflows.differences import with_differences

SCORE = Metric(higher_is_better=True, lower=None, upper=None)


def evaluation(a: float, task: str, value: float, merge: str = "m") -> Evaluation:
    return line({"a": a}, task, value, stderr=0.1, merge=merge)


@pytest.mark.parametrize(
    ("value", "ends"), [(0.3, (0.0, 1.0)), (0.0, (None, None))], ids=["0.3", "0"]
)
def test_a_constant_task_is_known_everywhere(
    value: float, ends: tuple[float | None, float | None]
) -> None:
    metric = Metric(higher_is_better=True, lower=ends[0], upper=ends[1])
    study = make_study("a", ["task"], metric=metric)
    X = np.linspace(0, 1, 6)[:, None]
    surrogate = fit(X, np.full(6, value), Link(*metric.bounds))

    front = found_front(study, StudyResult({"task": surrogate}, [{"a": 0.0}], 0), [])

    assert front.tasks["task"].fit.expected_r2 == 1.0
    assert front.tasks["task"].fit.front_error is None


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.5, 2.5)])
def test_a_fit_is_as_good_as_its_own_standard_errors_expect(
    ends: tuple[float, float],
) -> None:
    """A share of the variance over the box, and of the range on the front."""
    study = make_study("a", ["task"], metric=SCORE)
    study = replace(study, bounds={"a": ends}, anchors={})
    rng = np.random.default_rng(0)
    X = rng.uniform(*ends, size=(12, 1))
    y = rng.normal(X[:, 0], 0.2)
    surrogate = fit(X, y, bounds=study.box)
    merges = np.array([[0.6], [0.7], [0.95]])
    points = [{"a": a} for a in merges[:, 0].tolist()]

    front = found_front(study, StudyResult({"task": surrogate}, points, 0), [])

    found = front.tasks["task"].fit
    box = np.linspace(*ends, 4096)[:, None]
    unknown = (surrogate.stderr(box) ** 2).mean()
    known = surrogate.predict(box).var()
    assert found.expected_r2 == pytest.approx(known / (known + unknown), abs=5e-3)
    assert 0.3 < found.expected_r2 < 0.98
    error = np.sqrt((surrogate.stderr(merges) ** 2).mean())
    width = np.ptp(surrogate.predict(merges))
    assert found.front_error == pytest.approx(error / width)


def test_lists_the_merges_that_are_neither_points_nor_anchors() -> None:
    study = make_study("a", ["one", "two"], ("base",), SCORE)
    X = np.linspace(0, 1, 5)[:, None]
    fitted = fit(X, X[:, 0] ** 2)
    surrogates = {"one": fitted, "two": fitted}
    log = [
        evaluation(0.0, "one", 1.0),  # an anchor
        evaluation(0.3, "one", 2.0),
        evaluation(0.4, "one", 3.0),  # a point of the front
        evaluation(0.5, "one", 4.0, merge="before"),
        evaluation(0.7, "two", 5.0),
        evaluation(0.3, "two", 6.0),
        evaluation(0.3, "one", 7.0),  # measured again: the later one counts
    ]

    content = found_front(study, StudyResult(surrogates, [{"a": 0.4}], 0), log)

    first, second = content.merges
    assert first.coefficients == {"a": 0.3}
    assert [first.measured[t].value for t in ("one", "two")] == [7.0, 6.0]
    assert second.coefficients == {"a": 0.7}
    assert second.measured == {"one": UNKNOWN, "two": Reading.of(5.0, 0.1)}


LOSS = Metric(higher_is_better=False, lower=None, upper=None, unit="nats/token")
N = 40
HARD = np.linspace(-1, 1, N)  # what blocks have more or less than the others
STUDY = make_study("ab", ["loss"], ("base",), LOSS)


def blocks(a: float, b: float) -> np.ndarray:
    """Losses per block (N,): a valley, and a step on which each block falls by 0.3."""
    valley = 2 + 0.2 * (a - 0.6) ** 2 + 0.2 * (b - 0.5) ** 2
    return valley + HARD * (1 + a / 50) + 0.3 * (a < 0.52)


def step_front(folder: Path) -> Front:
    """Fit 12 merges and the anchor; the chosen point is just below the step."""
    chosen = {"a": 0.51, "b": 0.55}
    rows = [np.zeros(2), *qmc.Sobol(2, seed=1).random(16)[:12]]
    places = [*map(STUDY.named, rows), chosen]
    values, log = [], []
    for place in places:
        losses = blocks(**place)
        samples = [{"block": i, "loss": x, "tokens": 9} for i, x in enumerate(losses)]
        answers = Answers(tuple(range(N)), tuple(losses.tolist()), (9.0,) * N)
        measured = Measurement(0.0, None, 9, samples=tuple(samples), answers=answers)
        write_samples(folder / "loss", place, measured)
        values.append(float(losses.mean()))
        stderr = float(losses.std(ddof=1)) / math.sqrt(N)
        log.append(line(place, "loss", values[-1], stderr=stderr, n=N))
    fitted = fit(np.array(rows), np.array(values[:-1]))
    return found_front(STUDY, StudyResult({"loss": fitted}, [chosen], 0), log)


@pytest.mark.parametrize("records", ["with records per item", "without"])
def test_a_step_is_told_as_a_wrong_shape_and_a_miss(
    tmp_path: Path, records: str
) -> None:
    """Its standard error is that of documents that all merges share, and no excuse.

    The same merge would give the same loss again.
    """
    front = step_front(tmp_path)
    measured = front.chosen.measured["loss"]
    predicted = front.chosen.readings("predicted")["loss"].value or 0.0
    values = [m.measured["loss"].value or 0.0 for m in front.known]
    missed = abs((measured.value or 0.0) - predicted) / np.ptp(values)
    assert missed > 0.25
    assert missed * np.ptp(values) < 2 * (measured.stderr or 0.0)

    if records == "with records per item":
        front = with_differences(front, tmp_path, RunFolder(tmp_path))
        assert front.differences["loss"].items == N

    words = " ".join(front.verdicts)
    assert "measure more documents" not in words
    assert "Predictions of loss are not reliable" in words
