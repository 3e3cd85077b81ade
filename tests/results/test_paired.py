"""Differences of merges: standard errors of pairs, and what many comparisons find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fronts import as_json, from_json, make_front
from pydantic import ValidationError
from scipy import stats

from mergekit_map.results.paired import (
    ALPHA,
    BEHIND,
    Differences,
    PairedMerges,
    stderrs_of_differences,
)
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.tasks.base import ratio_stderr


def of_means(scores: FloatArray) -> FloatArray:
    """Give the influences of items (k, n) on their means."""
    return (scores - scores.mean(axis=1, keepdims=True)) / scores.shape[1]


def one_part(U: FloatArray) -> FloatArray:
    return stderrs_of_differences(U, np.zeros(U.shape[1], np.int_))


def test_of_means_it_is_the_error_of_the_mean_difference() -> None:
    scores = np.random.default_rng(0).normal(size=(4, 30))

    found = one_part(of_means(scores))

    expected = (scores[:, None] - scores).std(axis=2, ddof=1) / np.sqrt(30)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-15)


def test_against_what_no_item_moves_it_is_the_error_of_the_value_itself() -> None:
    rng = np.random.default_rng(1)
    totals, weights = rng.normal(size=20), rng.uniform(1, 2, size=20)
    left_out = (totals.sum() - totals) / (weights.sum() - weights)

    found = one_part(np.array([(left_out.mean() - left_out) * 19 / 20, np.zeros(20)]))

    assert found[0, 1] == pytest.approx(ratio_stderr([*totals], [*weights]))


def test_parts_of_a_group_are_drawn_by_themselves() -> None:
    rng = np.random.default_rng(4)
    sizes, shares = (10, 40), (0.3, 0.7)
    strata = np.repeat([5, 2], sizes)  # any numbers will do
    first, second = (rng.normal(size=(3, n)) for n in sizes)
    U = np.hstack([shares[0] * of_means(first), shares[1] * of_means(second)])

    squares = [
        (share * one_part(of_means(scores))) ** 2
        for share, scores in zip(shares, (first, second), strict=True)
    ]
    np.testing.assert_allclose(stderrs_of_differences(U, strata), np.sqrt(sum(squares)))
    # The order of the items says nothing.
    order = rng.permutation(50)
    np.testing.assert_allclose(
        stderrs_of_differences(U[:, order], strata[order]), np.sqrt(sum(squares))
    )


def test_of_answers_it_is_as_if_each_way_to_answer_were_seen_half_a_time_more() -> None:
    """Agresti and Min, of merges that are right as often: two of n differ each way."""
    scores = np.ones((2, 8))
    scores[0, :2], scores[1, 2:4] = 0, 0

    expected = np.sqrt(2 + 2 + 1) / (8 + 2)
    assert one_part(of_means(scores))[0, 1] == pytest.approx(expected)


def test_a_group_has_the_pseudo_answers_of_one_task() -> None:
    scores = np.ones((2, 40))
    scores[:, ::8] = 0  # alike

    group = stderrs_of_differences(of_means(scores), np.repeat(range(5), 8))[0, 1]

    assert group == pytest.approx(one_part(of_means(scores))[0, 1], rel=0.1)


ROW = ([(0.5, 0.1), (2.0, 0.1)],) * 2


def test_a_triangle_is_kept_and_gives_the_symmetric_array_back() -> None:
    square = np.array([[0, 0.123456, 2], [0.123456, 0, 3e-9], [2, 3e-9, 0]])

    kept = Differences.of([0, 2, 3], square, 7, answers=True)
    again = Differences.model_validate_json(kept.model_dump_json())
    array = again.between(np.arange(5)[:, None], np.arange(5))

    assert kept.answers
    assert kept.stderr == ((0.12346,), (2.0, 3e-9))  # five digits
    assert np.isnan(array[[1, 4]]).all()
    np.testing.assert_array_equal(array, array.T)
    np.testing.assert_allclose(array[np.ix_([0, 2, 3], [0, 2, 3])], square, rtol=5e-5)


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("math", {"merges": [1, 0]}, "in order"),
        ("math", {"merges": [0, 0]}, "in order"),
        ("math", {"stderr": [[0.1, 0.2]]}, "no triangle"),
        ("math", {"merges": [0, 2]}, "no such task, or merge"),
        ("text", {}, "no such task, or merge"),
    ],
)
def test_a_front_refuses_what_is_no_triangle_of_its_merges_and_tasks(
    task: str, change: dict[str, Any], message: str
) -> None:
    content = {"items": 3, "merges": [0, 1], "stderr": [[0.1]], **change}

    with pytest.raises(ValidationError, match=message):
        make_front([ROW], {"base": ROW[0]}, differences={task: content})


def test_a_front_without_the_later_keys_is_written_as_it_was_read() -> None:
    content = as_json(make_front([ROW]))

    assert not {"differences", "border"} & content.keys()
    assert "foretold" not in content["points"][0]
    assert as_json(from_json(content)) == content


NAN, INF = np.nan, np.inf


def against_one(
    Y: FloatArray,
    other: FloatArray,
    stderr: float | FloatArray,
    items: float = INF,
    *,
    answers: bool = False,
) -> PairedMerges:
    shape = np.broadcast_shapes(Y.shape, np.shape(stderr))
    full = [np.broadcast_to(np.asarray(x, float), shape) for x in (stderr, items)]
    kinds = np.full(shape[1], answers)
    return PairedMerges(Y, np.broadcast_to(other, shape), *full, kinds)


def dominating(found: PairedMerges) -> FloatArray:
    return found.better.any(axis=1) & (found.z_scores > -BEHIND).all(axis=1)


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("items", [INF, 20.0])
def test_as_large_as_numbers_go_is_far_ahead(items: float, answers: bool) -> None:
    Y = np.array([[1e308], [-1e308]])

    found = against_one(Y, np.array([-Y[0, 0]]), 0.1, items, answers=answers)

    assert found.z_scores[0, 0] > 1e10
    assert found.z_scores[1, 0] == 0
    assert found.better[:, 0].tolist() == [True, False]


def test_few_answers_are_judged_by_their_signs() -> None:
    """Of 20 answers ten are better and none is worse: chance gives that in 1 of 1024.

    Student's t, which takes the differences for normal, says 1 of 6000.
    """
    d = np.repeat([1.0, 0.0], 10)
    stderr = d.std(ddof=1) / np.sqrt(20)

    found = against_one(np.array([[d.mean()]]), np.zeros(1), stderr, 20, answers=True)

    assert found.z_scores[0, 0] == pytest.approx(np.sqrt(10))
    assert found.p_values[0, 0] == pytest.approx(0.5**10, rel=0.25)
    assert stats.t.sf(d.mean() / stderr, 19) < found.p_values[0, 0] / 4


@pytest.mark.parametrize("n", [4, 30])
@pytest.mark.parametrize(
    ("t", "within"), [(0.5, 0.005), (2.0, 0.005), (4.0, 0.05), (8.0, 0.2)]
)
def test_few_amounts_have_the_chance_of_students_t(
    n: int, t: float, within: float
) -> None:
    found = against_one(np.array([[t]]), np.zeros(1), 1.0, n)

    assert found.p_values[0, 0] == pytest.approx(stats.t.sf(t, n - 1), rel=within)


@pytest.mark.parametrize(
    ("k", "m", "items"),
    [(10, 2, 0), (105, 2, 0), (25, 8, 0), (10, 1, 30), (25, 1, 100)],
)
def test_no_search_finds_more_false_dominance_than_promised(
    k: int, m: int, items: int
) -> None:
    """All merges are equal, and each errs by itself: 13, 21, 40 % without control.

    Or they answer questions that are hard or easy for all, and are compared in pairs.
    """
    rng = np.random.default_rng(items + k)
    n, false = 400, 0
    for _ in range(n):
        ease = rng.beta(1, 1, size=items)
        right = (rng.uniform(size=(k + 1, items)) < ease).astype(float)
        Y = right.mean(axis=1, keepdims=True) if items else rng.normal(size=(k + 1, m))
        stderr = one_part(of_means(right))[1:, :1] if items else np.sqrt(2)
        found = against_one(Y[1:], Y[0], stderr, items or INF, answers=bool(items))
        false += dominating(found).any()

    # 5 % and two standard errors of what so many searches tell.
    assert false / n <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / n)


def test_behind_by_a_hair_is_no_veto_and_behind_by_a_standard_error_is() -> None:
    rows = np.array([[5.0, -0.9], [5.0, -1.1]])

    assert dominating(against_one(rows, np.zeros(2), 1.0)).tolist() == [True, False]


def test_without_known_noise_nothing_explains_a_difference() -> None:
    rows = np.array([[1.0, 1.1], [0.999, 1.1], [1.0, 1.0], [1.0 + 1e-14, 1.0]])

    found = against_one(rows, np.ones(2), NAN)

    assert dominating(found).tolist() == [True, False, False, False]
    # The same model under another name: no difference, and no error of it.
    np.testing.assert_array_equal(against_one(rows[2:3], rows[2], 0.0, 50).z_scores, 0)


def test_nothing_is_better_than_what_was_not_measured_nor_the_other_way() -> None:
    rows = np.array([[9.0, 9.0], [9.0, NAN]])

    assert not dominating(against_one(rows, np.array([1.0, NAN]), 0.1)).any()
    assert dominating(against_one(rows, np.ones(2), 0.1)).tolist() == [True, False]
