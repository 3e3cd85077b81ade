"""Standard errors of differences: closed forms, identities, a bootstrap; in a file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from fronts import as_json, from_json, make_front
from pydantic import ValidationError

from mergekit_map.results.paired import Differences, stderrs_of_differences
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.tasks.base import ratio_standard_error


def of_means(scores: FloatArray) -> FloatArray:
    """Give the influences of items (k, n) on their means."""
    return (scores - scores.mean(axis=1, keepdims=True)) / scores.shape[1]


def one_part(U: FloatArray) -> FloatArray:
    return stderrs_of_differences(U, np.zeros(U.shape[1], np.int_))


def test_of_means_it_is_the_error_of_the_mean_difference() -> None:
    scores = np.random.default_rng(0).normal(size=(4, 30))

    found = one_part(of_means(scores))

    for i in range(4):
        for j in range(4):
            d = scores[i] - scores[j]
            assert found[i, j] == pytest.approx(d.std(ddof=1) / np.sqrt(30), abs=1e-15)


def test_against_what_no_item_moves_it_is_the_error_of_the_value_itself() -> None:
    rng = np.random.default_rng(1)
    totals, weights = rng.normal(size=20), rng.uniform(1, 2, size=20)
    influences = (totals - totals.sum() / weights.sum() * weights) / weights.sum()

    found = one_part(np.array([influences, np.zeros(20)]))

    own = ratio_standard_error(list(totals), list(weights))
    assert found[0, 1] == pytest.approx(own)


def test_what_items_have_in_common_drops_out() -> None:
    rng = np.random.default_rng(2)
    own, hard = rng.normal(size=(3, 50)), rng.normal(size=50) * 1e3

    np.testing.assert_allclose(
        one_part(of_means(own + hard)), one_part(of_means(own)), rtol=1e-9, atol=1e-12
    )


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


def test_it_is_what_drawing_the_documents_again_gives() -> None:
    """Losses of texts of different lengths, which are hard or easy for both merges."""
    rng = np.random.default_rng(5)
    n = 200
    weights = rng.integers(50, 500, size=n)
    hard = rng.normal(3, 0.5, size=n)
    losses = np.array([hard, hard * 1.02 + rng.normal(size=n) / 10])
    totals = losses * weights
    draws = rng.integers(n, size=(4000, n))

    ratios = totals[:, draws].sum(axis=2) / weights[draws].sum(axis=1)
    bootstrap = (ratios[0] - ratios[1]).std()
    values = totals.sum(axis=1, keepdims=True) / weights.sum()
    found = one_part((totals - values * weights) / weights.sum())[0, 1]

    # The standard deviation of 4000 draws is known to about 1 %.
    assert found == pytest.approx(bootstrap, rel=0.04)
    alone = np.hypot(*ratios.std(axis=1))
    assert found < alone / 5  # as if the documents were others for each merge


def test_few_answers_cover_the_true_difference_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    talent = rng.normal(size=(2, 20_000)) * 0.3 + rng.normal(size=20_000)
    population = (talent > [[1.2], [1.3]]).astype(np.float64)
    true = population[0].mean() - population[1].mean()

    covered = 0
    for _ in range(2000):
        scores = population[:, rng.integers(20_000, size=20)]
        error = one_part(of_means(scores))[0, 1]
        covered += abs(scores[0].mean() - scores[1].mean() - true) <= 1.96 * error

    # Without the two answers more it is 0.74; 2000 draws tell it to 0.01.
    assert 0.92 <= covered / 2000 <= 0.98


@pytest.mark.parametrize("n", [8, 50])
def test_of_answers_it_is_as_if_each_way_to_answer_were_seen_half_a_time_more(
    n: int,
) -> None:
    """Agresti and Min, of merges that are right as often: two of n differ each way."""
    scores = np.ones((2, n))
    scores[0, :2], scores[1, 2:4] = 0, 0

    expected = np.sqrt(2 + 2 + 1) / (n + 2)
    assert one_part(of_means(scores))[0, 1] == pytest.approx(expected)


ROW = ([(0.5, 0.1), (2.0, 0.1)],) * 2


def test_a_triangle_is_kept_and_gives_the_symmetric_array_back() -> None:
    square = np.array([[0, 0.123456, 2], [0.123456, 0, 3e-9], [2, 3e-9, 0]])

    kept = Differences.of([0, 2, 3], square, 7, answers=True)
    content = json.dumps(kept.model_dump(mode="json"))
    five = np.arange(5)
    array = Differences.model_validate_json(content).between(five[:, None], five)

    assert kept.answers
    assert kept.stderr == ((0.12346,), (2.0, 3e-9))  # five digits
    assert np.isnan(array[[1, 4]]).all()
    np.testing.assert_array_equal(array, array.T)
    np.testing.assert_allclose(array[np.ix_([0, 2, 3], [0, 2, 3])], square, rtol=5e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"merges": [1, 0]}, "in order"),
        ({"merges": [0, 0]}, "in order"),
        ({"stderr": [[0.1, 0.2]]}, "no triangle"),
    ],
)
def test_what_is_no_triangle_of_merges_is_refused(
    change: dict[str, Any], message: str
) -> None:
    content = {"items": 3, "merges": [0, 1], "stderr": [[0.1]], **change}

    with pytest.raises(ValidationError, match=message):
        Differences.model_validate_json(json.dumps(content))


def test_a_front_refuses_differences_of_merges_and_tasks_that_it_lacks() -> None:
    content = {"items": 3, "merges": [0, 1], "stderr": [[0.1]]}

    found = make_front([ROW], {"base": ROW[0]}, differences={"math": content})

    pair = np.array([0]), np.array([1])
    assert found.differences["math"].between(*pair).tolist() == [0.1]
    assert not found.differences["math"].answers  # of items nothing else is known of
    for others in ({"text": content}, {"math": {**content, "merges": [0, 2]}}):
        with pytest.raises(ValidationError, match="no such task, or merge"):
            make_front([ROW], {"base": ROW[0]}, differences=others)


def test_a_front_without_the_later_keys_is_written_as_it_was_read() -> None:
    content = as_json(make_front([ROW]))

    assert not {"differences", "border"} & content.keys()
    assert "foretold" not in content["points"][0]
    assert as_json(from_json(content)) == content
