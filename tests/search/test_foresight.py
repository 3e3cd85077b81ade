"""What is foreseen of documents: a dense second implementation, identities, limits."""

from __future__ import annotations

import numpy as np
import pytest

from mergekit_map.search import cokriging
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.cokriging import Level, grouped, krige
from mergekit_map.search.foresight import Seen, foresee
from mergekit_map.search.kernel import (
    Covariance,
    Rows,
    covariance_to,
    process_covariance,
    term_widths,
)
from mergekit_map.search.quadratic import quadratic_features


def quadratics(U: FloatArray, D: int, seed: int = 0) -> FloatArray:
    """Give values (k, D) of documents that are different quadratics."""
    rng = np.random.default_rng(seed)
    features = quadratic_features(U)
    return np.asarray(features @ rng.normal(size=(features.shape[1], D)))


def test_kriging_is_that_of_all_documents_in_one_dense_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cokriging, "_FREEDOM", 1e12)  # all scales are 1
    rng = np.random.default_rng(0)
    M, D, d = 6, 9, 2
    U = rng.uniform(-0.5, 0.5, size=(M + 1, d))
    Y = rng.normal(size=(M, D))
    asked = rng.uniform(size=(M, D)) < 0.6
    asked[0] = True
    theta = np.log([0.7, 0.9, 0.5, 0.1, 1.0, 0.4, 0.8, 1.2])

    groups = grouped(np.where(asked, Y, 0.0), asked)
    found = Level(U, theta, groups).krige(1.0, D)

    rows = Rows(U[:-1], np.zeros(0, dtype=np.int_), np.ones(M))
    terms = (quadratic_features(U) * term_widths(d, theta))[:, 1:]
    level = terms @ terms.T + process_covariance(U, U, theta)
    own, link = Covariance(rows, theta).whole, covariance_to(rows, theta, U[-1:])[0]
    i, j = np.nonzero(asked)
    same = j[:, None] == j
    whole = level[i[:, None], i] + np.where(same, own[i[:, None], i], 0.0)
    to = level[-1, i] + np.where(np.arange(D)[:, None] == j, link[i], 0.0)  # (D, r)
    np.testing.assert_allclose(found.mean, to @ np.linalg.solve(whole, Y[i, j]))
    alone = Covariance(Rows(U[-1:], rows.sloped, np.ones(1)), theta).whole[0, 0]
    prior = np.full((D, D), level[-1, -1]) + alone * np.eye(D)
    posterior = prior - to @ np.linalg.solve(whole, to.T)
    common = found.level**2 + (found.deviation**2).sum() / D**2
    assert posterior.mean() == pytest.approx(common, rel=1e-6)


def test_quadratic_documents_are_foreseen_from_parts_of_them() -> None:
    rng = np.random.default_rng(1)
    U = rng.uniform(size=(30, 2))
    Y = quadratics(U, 100)
    seen = [Seen(u, np.arange(100), y) for u, y in zip(U[:6], Y[:6], strict=True)]
    for u, y in zip(U[6:-1], Y[6:-1], strict=True):
        ids = np.flatnonzero(rng.uniform(size=100) < 0.2)
        seen.append(Seen(u, ids, y[ids]))

    found = foresee(U[-1], seen, 100)

    off = Y[-1] - found.mean
    assert np.sqrt((off**2).mean()) < 0.05 * Y[-1].std()
    assert (abs(off) < 4 * np.hypot(found.deviation, found.common)).mean() > 0.97


def test_errors_are_as_large_as_foreseen() -> None:
    rng = np.random.default_rng(2)
    U = rng.uniform(size=(12, 2))
    Y = quadratics(U, 300) + 0.2 * rng.normal(size=(12, 300))
    seen = [Seen(u, np.arange(300), y) for u, y in zip(U[:-1], Y[:-1], strict=True)]

    found = foresee(U[-1], seen, 300)

    z = (Y[-1] - found.mean) / found.deviation
    assert np.sqrt((z**2).mean()) == pytest.approx(1, abs=0.2)


def test_documents_that_vary_more_are_foreseen_less_surely() -> None:
    rng = np.random.default_rng(3)
    U = rng.uniform(size=(9, 2))
    Y = quadratics(U, 40) + rng.normal(size=(9, 40))
    Y[:, 20:] *= 10

    found = foresee(
        rng.uniform(size=2),
        [Seen(u, np.arange(40), y) for u, y in zip(U, Y, strict=True)],
        40,
    )

    assert found.deviation[20:].mean() > 3 * found.deviation[:20].mean()


def test_answers_are_right_as_often_as_foreseen_from_margins() -> None:
    rng = np.random.default_rng(4)
    U = rng.uniform(size=(9, 2))
    margins = quadratics(U, 2000)
    margins[:, :] += rng.normal(size=(9, 2000)) * 0.5
    values = (margins > 0).astype(np.float64)
    seen = [
        Seen(u, np.arange(2000), y, m)
        for u, y, m in zip(U[:-1], values[:-1], margins[:-1], strict=True)
    ]

    found = foresee(U[-1], seen, 2000)

    assert found.answers
    np.testing.assert_allclose(found.deviation**2, found.mean * (1 - found.mean))
    for low, high in ((0.0, 0.1), (0.1, 0.4), (0.6, 0.9), (0.9, 1.0)):
        some = (low <= found.mean) & (found.mean <= high)
        assert some.sum() > 50
        assert abs(values[-1, some].mean() - found.mean[some].mean()) < 0.1


def test_answers_without_margins_are_foreseen_from_what_was_right() -> None:
    rng = np.random.default_rng(5)
    hard = rng.uniform(size=300)
    values = (rng.uniform(size=(9, 300)) < hard).astype(np.float64)
    U = rng.uniform(size=(9, 2))
    seen = [
        Seen(u, np.arange(300), y) for u, y in zip(U[:-1], values[:-1], strict=True)
    ]

    found = foresee(U[-1], seen, 300)

    assert (found.mean > 0).all()
    assert (found.mean < 1).all()
    assert np.corrcoef(found.mean, hard)[0, 1] > 0.8


def test_with_nothing_known_all_documents_are_alike() -> None:
    nobody = Seen(np.zeros(2), np.zeros(0, dtype=np.int_), np.zeros(0))

    for earlier in ([], [nobody]):
        found = foresee(np.ones(2), earlier, 3)
        assert found.mean.tolist() == [0.0] * 3
        assert found.deviation.tolist() == [1.0] * 3


def test_documents_never_asked_are_foreseen_as_the_mean_of_others() -> None:
    U = np.random.default_rng(6).uniform(size=(5, 2))
    Y = quadratics(U, 20)
    seen = [Seen(u, np.arange(15), y[:15]) for u, y in zip(U, Y, strict=True)]

    found = foresee(np.full(2, 0.5), seen, 20)

    np.testing.assert_allclose(found.mean[15:], found.mean[:15].mean())
    assert (found.deviation[15:] > found.mean[:15].std()).all()


def test_documents_that_never_change_are_foreseen_exactly() -> None:
    U = np.random.default_rng(7).uniform(size=(5, 2))
    seen = [Seen(u, np.arange(10), np.full(10, 2.5)) for u in U]

    found = foresee(np.full(2, 0.5), seen, 10)

    np.testing.assert_allclose(found.mean, 2.5, atol=1e-3)
    assert np.isfinite(found.deviation).all()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_same_merge_again_is_foreseen_as_it_was(count: int) -> None:
    place, said = np.full(3, 0.4), np.random.default_rng(8).normal(size=25)

    found = foresee(place, [Seen(place, np.arange(25), said)] * count, 25)

    np.testing.assert_allclose(found.mean, said, atol=0.1)


def test_in_what_order_and_unit_documents_are_says_nothing() -> None:
    rng = np.random.default_rng(9)
    U, order = rng.uniform(size=(8, 2)), rng.permutation(30)
    Y = quadratics(U, 30)

    plain = krige(U[-1], U[:-1], Y[:-1])
    other = krige(U[-1], U[:-1], 1e3 * Y[:-1, order])

    np.testing.assert_allclose(other.mean, 1e3 * plain.mean[order], rtol=1e-3, atol=1)
