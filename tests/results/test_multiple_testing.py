"""Many comparisons: what chance gives, and what is there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mergekit_map.results.multiple_testing import ALPHA, Comparisons, PairedMerges
from mergekit_map.results.paired import stderrs_of_differences
from mergekit_map.surrogates.arrays import FloatArray

NAN = np.nan
INF = np.inf


def against_one(
    Y: FloatArray,
    other: FloatArray,
    stderr: float | FloatArray,
    items: float = INF,
    *,
    answers: bool = False,
) -> Comparisons:
    shape = np.broadcast_shapes(Y.shape, np.shape(stderr))
    full = [np.broadcast_to(np.asarray(x, float), shape) for x in (stderr, items)]
    kinds = np.full(shape[1], answers)
    return PairedMerges(Y, np.broadcast_to(other, shape), *full, kinds).tested()


def dominating(found: Comparisons) -> FloatArray:
    return found.better.any(axis=1) & found.kept


def test_a_single_comparison_has_the_chance_of_a_normal_tail() -> None:
    found = against_one(np.array([[1.3]]), np.array([1.0]), 0.1)

    assert found.scores[0, 0] == pytest.approx(3)
    assert found.chances[0, 0] == pytest.approx(stats.norm.sf(3))


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("items", [INF, 20.0])
def test_as_large_as_numbers_go_is_far_ahead(items: float, answers: bool) -> None:
    Y = np.array([[1e308], [-1e308]])

    found = against_one(Y, np.array([-Y[0, 0]]), 0.1, items, answers=answers)

    assert found.scores[0, 0] > 1e10
    assert found.scores[1, 0] == 0
    assert found.better[:, 0].tolist() == [True, False]


def test_many_are_adjusted_by_holm() -> None:
    """A second implementation, as Holm wrote it: reject while p <= alpha / (n - i)."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        z = rng.normal(1, 2, size=(5, 3))
        p = stats.norm.sf(z).ravel()
        rejected = np.zeros(15, bool)
        for i, index in enumerate(np.argsort(p)):
            if p[index] > ALPHA / (15 - i):
                break
            rejected[index] = True

        found = against_one(z, np.zeros(3), 1.0)

        np.testing.assert_array_equal((found.chances <= ALPHA).ravel(), rejected)
        assert (found.chances >= p.reshape(5, 3)).all()


def test_few_answers_are_judged_by_their_signs() -> None:
    """Of 20 answers ten are better and none is worse: chance gives that in 1 of 1024.

    Student's t, which takes the differences for normal, says 1 of 6000.
    """
    d = np.repeat([1.0, 0.0], 10)
    stderr = d.std(ddof=1) / np.sqrt(20)

    found = against_one(np.array([[d.mean()]]), np.zeros(1), stderr, 20, answers=True)

    assert found.scores[0, 0] == pytest.approx(np.sqrt(10))
    assert found.chances[0, 0] == pytest.approx(0.5**10, rel=0.25)
    assert stats.t.sf(d.mean() / stderr, 19) < found.chances[0, 0] / 4


@pytest.mark.parametrize("n", [4, 10, 30, 1000])
@pytest.mark.parametrize(
    ("t", "within"), [(0.5, 0.005), (2.0, 0.005), (4.0, 0.05), (8.0, 0.2)]
)
def test_few_amounts_have_the_chance_of_students_t(
    n: int, t: float, within: float
) -> None:
    found = against_one(np.array([[t]]), np.zeros(1), 1.0, n)

    assert found.chances[0, 0] == pytest.approx(stats.t.sf(t, n - 1), rel=within)


@pytest.mark.parametrize(("k", "m"), [(10, 2), (25, 2), (105, 2), (25, 8)])
def test_no_search_finds_more_false_dominance_than_promised(k: int, m: int) -> None:
    """All merges are equal, and each errs by itself: 13, 21, 40 % without control."""
    rng = np.random.default_rng(k)
    n, false = 600, 0
    for _ in range(n):
        Y = rng.normal(size=(k + 1, m))
        found = against_one(Y[1:], Y[0], np.sqrt(2))
        false += dominating(found).any()

    # 5 % and two standard errors of what so many searches tell.
    assert false / n <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / n)


@pytest.mark.parametrize(("items", "k"), [(30, 10), (100, 25), (100, 105)])
def test_none_of_shared_questions_either(items: int, k: int) -> None:
    """Answers to questions that are hard or easy for all merges, compared in pairs."""
    rng = np.random.default_rng(items + k)
    n, false = 300, 0
    for _ in range(n):
        ease = rng.beta(1, 1, size=items)
        right = (rng.uniform(size=(k + 1, items)) < ease).astype(float)
        U = (right - right.mean(axis=1, keepdims=True)) / items
        stderr = stderrs_of_differences(U, np.zeros(items, int))[1:, :1]
        Y = right.mean(axis=1, keepdims=True)
        found = against_one(Y[1:], Y[0], stderr, items, answers=True)
        false += dominating(found).any()

    assert false / n <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / n)


@pytest.mark.parametrize(("m", "least"), [(1, 0.8), (2, 0.75), (4, 0.65), (8, 0.5)])
def test_a_gain_on_one_task_is_found_among_equal_ones(m: int, least: float) -> None:
    """3 standard errors; a veto by a hair would leave 0.8 % of them on eight tasks."""
    rng = np.random.default_rng(m)
    Y = rng.normal(size=(1000, m))
    Y[:, 0] += 3

    found = [dominating(against_one(row[None], np.zeros(m), 1.0))[0] for row in Y]

    assert np.mean(found) >= least


def test_the_only_comparison_must_be_ahead_by_two_standard_errors_too() -> None:
    found = against_one(np.array([[1.9]]), np.zeros(1), 1.0)

    assert found.chances[0, 0] < ALPHA
    assert not found.better.any()


def test_behind_by_a_hair_is_no_veto_and_behind_by_more_than_noise_is() -> None:
    rows = np.array([[5.0, -1.9], [5.0, -2.1]])

    assert dominating(against_one(rows, np.zeros(2), 1.0)).tolist() == [True, False]


def test_without_known_noise_nothing_explains_a_difference() -> None:
    rows = np.array([[1.0, 1.1], [0.999, 1.1], [1.0, 1.0], [1.0 + 1e-14, 1.0]])

    found = against_one(rows, np.ones(2), NAN)

    assert dominating(found).tolist() == [True, False, False, False]


def test_nothing_is_better_than_what_was_not_measured_nor_the_other_way() -> None:
    rows = np.array([[9.0, 9.0], [9.0, NAN]])

    assert not dominating(against_one(rows, np.array([1.0, NAN]), 0.1)).any()
    found = against_one(rows, np.ones(2), 0.1)
    assert dominating(found).tolist() == [True, False]


def test_equal_merges_without_any_noise_are_level() -> None:
    """The same model under another name: no difference, and no error of it."""
    found = against_one(np.ones((1, 2)), np.ones(2), 0.0, 50)

    np.testing.assert_array_equal(found.scores, 0)
    assert not dominating(found).any()


def test_units_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    Y, other, stderr = rng.normal(size=(6, 3)), rng.normal(size=3), np.ones((6, 3))
    units = np.array([1e-6, 1.0, 1e6])

    first = against_one(Y, other, stderr)
    second = against_one(Y * units, other * units, stderr * units)

    np.testing.assert_allclose(first.chances, second.chances, rtol=1e-9)
