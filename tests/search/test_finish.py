"""What ``front.json`` holds besides the front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import bowls, changed, line, make_study
from surrogate_data import fit

from mergekit_map.evaluation.holdout import with_confirmation
from mergekit_map.results.front import UNKNOWN, Reading
from mergekit_map.results.limits import Anchors
from mergekit_map.results.log import Evaluation
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.finish import end_search, found_front
from mergekit_map.search.measure import reference_values
from mergekit_map.search.study import Candidate, StudyResult
from mergekit_map.surrogates.quadratic import Link
from mergekit_map.types import Metric

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
def test_a_fit_is_as_good_as_its_standard_errors_say(ends: tuple[float, float]) -> None:
    """A share of the variance over the box, and of the range on the front."""
    study = make_study("a", ["task"], metric=SCORE)
    study = replace(study, bounds={"a": ends}, anchors={})
    rng = np.random.default_rng(0)
    X = rng.uniform(*ends, size=(12, 1))
    surrogate = fit(X, rng.normal(X[:, 0], 0.2), bounds=study.box)
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
    assert found.front_error == pytest.approx(error / np.ptp(surrogate.predict(merges)))

    # Points that hardly differ are held to a 20th of the range within the bounds.
    points = [{"a": 0.7}, {"a": 0.7 + 1e-6}]
    front = found_front(study, StudyResult({"task": surrogate}, points, 0), [])
    (error,) = surrogate.stderr(np.array([[0.7]]))
    least = np.ptp(surrogate.predict(box)) / 20
    found = front.tasks["task"].fit
    assert found.front_error == pytest.approx(error / least, rel=0.01)


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
        evaluation(0.9, "one", 8.0).model_copy(update={"role": "opponent"}),
        evaluation(1.2, "one", 9.0),  # outside the bounds
    ]

    content = found_front(study, StudyResult(surrogates, [{"a": 0.4}], 0), log)

    first, second = content.merges
    assert first.coefficients == {"a": 0.3}
    assert [first.measured[t].value for t in ("one", "two")] == [7.0, 6.0]
    assert second.coefficients == {"a": 0.7}
    assert second.measured == {"one": UNKNOWN, "two": Reading.of(5.0, 0.1)}
    # With the same weights, only the linear merge is the soup.
    study = replace(study, on_disk=study.of_models({"soup": {"a": 0.3}}, "linear"))
    content = found_front(study, StudyResult(surrogates, [{"a": 0.4}], 0), log)
    held_out = [changed(log[1], role="holdout", merge=m) for m in ("m", "linear")]
    found = with_confirmation(study, content, RunFolder(Path()), held_out).holdout
    assert [merge.label for merge in found.merges] == [None, "soup"]


@pytest.mark.parametrize(
    ("metric", "noise"), [(Metric(True, 0.0, 1.0), {"one": 0.1}), (SCORE, {"one": 0.0})]
)
def test_reference_values_are_of_merges_and_of_models_on_disk(
    metric: Metric, noise: dict[str, float]
) -> None:
    study = make_study("a", ["one"], ("base",), metric)
    study = replace(study, on_disk=study.of_models({"soup": {"a": 0.5}}, "linear"))
    log = [evaluation(0.0, "one", 1.0), evaluation(0.5, "one", 2.0, merge="linear")]

    found = reference_values(study, log[:1], log)

    assert found.values == {"base": {"one": 1.0}, "soup": {"one": 2.0}}
    assert found.noise == noise


def test_a_failure_never_replaces_a_value() -> None:
    study = make_study("ab", ["near_a"], remeasure=0)
    places = np.random.default_rng(0).uniform(size=(8, 2)).tolist()
    merges = [dict(zip("ab", place, strict=True)) for place in places]
    known = [line(c, "near_a", bowls(c, "near_a").value) for c in merges]

    def failing(planned: Sequence[Candidate], _: object) -> list[Evaluation]:
        return [line(merge, "near_a", math.nan) for _, merge in planned]

    found = end_search(study, known, Anchors({}), failing)

    assert found.surrogates["near_a"].quality.n == len(known)
