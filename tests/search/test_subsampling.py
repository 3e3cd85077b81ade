"""The regression estimator: closed forms, identities, and both of its errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mergekit_map.search.subsampling import Subset, draw_subset
from mergekit_map.tasks.base import ratio_stderr
from mergekit_map.types import Answers, Measurement

SIZE, ANYTHING = 60, (-math.inf, math.inf)


def answers_of(scores: Any, weights: Any = None, **more: Any) -> Answers:
    weights = np.ones(len(scores)) if weights is None else weights
    return Answers(tuple(range(len(scores))), tuple(scores), tuple(weights), **more)


def measured(subset: Subset, scores: Any) -> Measurement:
    """Measure the subset of a merge with the scores (D,) of all documents."""
    some = list(subset.ids)
    answers = Answers(subset.ids, tuple(scores[some]), tuple(subset.weights[some]))
    details = {"perplexity": 3.0}
    return Measurement(0.0, None, len(some), details=details, answers=answers)


def drawn(
    count: int, references: Any, weights: Any = None, seed: int = 0, **more: Any
) -> Subset:
    known = [answers_of(scores, weights, **more) for scores in references]
    return draw_subset(count, known, np.random.default_rng(seed))


@pytest.mark.parametrize("exponential", [False, True])
def test_scores_that_are_a_sum_of_the_references_are_estimated_exactly(
    exponential: bool,
) -> None:
    rng = np.random.default_rng(0)
    references, weights = rng.normal(size=(3, SIZE)), rng.uniform(1, 5, size=SIZE)
    scores = 2 + references.T @ [0.5, -1.0, 2.0]
    subset = drawn(20, references, weights, exponential=exponential)

    found = subset.estimate(measured(subset, scores), ANYTHING)

    mean = float(weights @ scores / weights.sum())
    assert found.value == pytest.approx(math.exp(mean) if exponential else mean)
    assert found.sampling < 1e-4 * found.value
    assert (found.n, found.details) == (20, {})


def test_references_that_say_nothing_leave_the_mean_and_its_textbook_error() -> None:
    scores = np.random.default_rng(1).normal(size=SIZE)
    subset = drawn(50, np.ones((2, SIZE)))

    found = subset.estimate(measured(subset, scores), ANYTHING)

    some, n = scores[list(subset.ids)], 50
    assert found.value == pytest.approx(some.mean())
    # Residuals left out are n / (n - 1) of those fitted; Student's t of 0.4 (n - 1).
    textbook = some.std(ddof=1) * math.sqrt((1 - n / SIZE) / (n - 1))
    assert found.sampling == pytest.approx(textbook * 2.0930 / 1.96, rel=0.01)


def test_all_documents_have_the_value_and_the_error_of_a_measurement_on_all() -> None:
    rng = np.random.default_rng(2)
    references, weights = rng.normal(size=(3, SIZE)), rng.uniform(1, 5, size=SIZE)
    scores = references.sum(axis=0) + rng.normal(size=SIZE)
    subset = Subset(tuple(range(SIZE)), references.T, weights, False)

    found = subset.estimate(measured(subset, scores), ANYTHING)

    assert found.value == pytest.approx(weights @ scores / weights.sum())
    assert found.sampling == 0
    assert found.stderr == pytest.approx(
        ratio_stderr(list(scores * weights), list(weights))
    )


def test_the_unit_of_weights_and_the_order_of_references_change_nothing() -> None:
    rng = np.random.default_rng(3)
    references, weights = rng.normal(size=(4, SIZE)), rng.uniform(1, 5, size=SIZE)
    scores = rng.normal(size=SIZE)
    one = drawn(20, references, weights)
    other = drawn(20, references[::-1], 1000 * weights)

    found, again = (s.estimate(measured(s, scores), ANYTHING) for s in (one, other))

    assert one.ids == other.ids
    for name in ("value", "stderr", "sampling"):
        assert getattr(found, name) == pytest.approx(getattr(again, name))


@pytest.mark.parametrize(
    ("unit", "ends", "n_wrong"),
    [(1.0, (0.0, 1.0), 0), (100.0, (0.0, 100.0), 0), (100.0, ANYTHING, 30)],
)
def test_answers_that_were_all_foreseen_are_not_known_without_an_error(
    unit: float, ends: tuple[float, float], n_wrong: int
) -> None:
    right = unit * (np.arange(SIZE) >= n_wrong)
    subset = drawn(20, [right, right])

    found = subset.estimate(measured(subset, right), ends)

    assert found.value == pytest.approx(right.mean())
    # Half a document of 20, mispredicted altogether.
    least = unit * math.sqrt((1 - 20 / SIZE) * 0.5) / 20
    assert least < found.sampling < 1.2 * least


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_no_number_makes_a_value_that_is_none(value: float) -> None:
    subset, scores = drawn(20, np.ones((2, SIZE))), np.ones(SIZE)
    scores[subset.ids[3]] = value

    found = subset.estimate(measured(subset, scores), ANYTHING)

    assert math.isnan(found.value)
    assert (found.stderr, found.sampling) == (None, 0.0)


def test_the_same_generator_draws_the_same_documents_and_more_include_fewer() -> None:
    references = np.ones((1, SIZE))

    few, more = drawn(8, references), drawn(20, references)

    assert few.ids == drawn(8, references).ids == tuple(sorted(few.ids))
    assert set(few.ids) < set(more.ids)
    assert drawn(8, references, seed=1).ids != few.ids
    rng = np.random.default_rng(0)
    assert draw_subset(SIZE, [answers_of(references[0])], rng) is None


@pytest.mark.parametrize("kind", ["losses", "answers"])
def test_intervals_cover_all_documents_and_the_population_they_are_from(
    kind: str,
) -> None:
    """Documents are draws, merges bend between the references; 95 % are nominal."""
    off: dict[str, list[float]] = {"all": [], "population": []}
    for seed in range(300):
        level, slope, bend = np.random.default_rng(seed).normal(size=(3, 200))

        def scores(x: float, level=level, slope=slope, bend=bend) -> Any:
            found = level + slope * x + 6 * bend * x * (1 - x)
            return (found > 0).astype(float) if kind == "answers" else found

        subset = drawn(32, [scores(x) for x in (0.0, 0.5, 1.0)], seed=seed)
        ends = (0.0, 1.0) if kind == "answers" else ANYTHING
        found = subset.estimate(measured(subset, scores(0.8)), ends)
        off["all"].append((found.value - scores(0.8).mean()) / found.sampling)
        mean = 0.5 if kind == "answers" else 0.0
        off["population"].append((found.value - mean) / found.stderr)

    for errors in off.values():
        assert 0.90 <= np.mean(np.abs(errors) <= 1.96) <= 0.99
        assert abs(np.mean(errors)) < 4 * np.std(errors) / math.sqrt(len(errors))
