"""What a further measurement teaches, against conditioning on one more row."""

from dataclasses import replace

import numpy as np
import pytest

from mergekit_map.search.fit import fit_surrogate
from mergekit_map.search.kernel import Rows
from mergekit_map.search.links import Link
from mergekit_map.search.observations import scaled
from mergekit_map.search.process import Posterior
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.search.teaching import taught

BOX = np.array([[0.0, 1.0], [-0.5, 1.5]])


UNBOUNDED = Link()
NEW = np.zeros(5, dtype=np.bool_)


def fitted(link: Link = UNBOUNDED) -> Surrogate:
    rng = np.random.default_rng(3)
    X = rng.uniform(BOX[:, 0], BOX[:, 1], size=(10, 2))
    y = 0.5 + 0.3 * np.sin(4 * X[:, 0]) * X[:, 1] / 2
    sampling = np.where(np.arange(10) < 4, 0.0, 0.03)
    return fit_surrogate(
        X,
        y,
        stderr=np.full(10, 0.01),
        link=link,
        bounds=BOX,
        sampling=sampling,
        kind="residual_gp",
    )


@pytest.mark.parametrize("link", [UNBOUNDED, Link(0.0, 1.0)])
@pytest.mark.parametrize("stderr", [0.0, 0.02])
def test_what_is_taught_is_the_fall_of_the_variance(link: Link, stderr: float) -> None:
    surrogate = fitted(link)
    process = surrogate.process
    assert process is not None
    front = np.random.default_rng(4).uniform(0, 1, size=(7, 2))
    x = np.array([0.3, 0.9])

    V, rows = scaled(front, BOX), process.rows

    def slopes_at(W: np.ndarray) -> np.ndarray:
        return link.derivative(link.invert(surrogate.predict(W)))

    [slope] = slopes_at(x[None])
    own = (stderr / slope / process.scale) ** 2
    more = Rows(
        np.vstack([rows.U, scaled(x[None], BOX)]),
        rows.sloped,
        np.append(rows.noise, rows.noise.mean()),
        np.append(rows.sampling, own),
    )
    before, after = (
        Posterior(r, z, process.theta).at(V)[1] ** 2
        for r, z in ((rows, process.z), (more, np.append(process.z, 0.0)))
    )
    fall = process.scale**2 * slopes_at(front) ** 2 * (before - after)

    others = np.array([[0.9, 0.1], x])
    found = taught(surrogate, front, others, np.array([0.5, stderr]), NEW[:2])

    assert found[1] == pytest.approx(fall.mean(), rel=1e-5)
    assert found[1] > 0


@pytest.mark.parametrize("link", [UNBOUNDED, Link(0.0, 1.0)])
def test_more_documents_teach_as_much_as_half_of_their_variance_does(
    link: Link,
) -> None:
    surrogate, point = fitted(link), 7
    process = surrogate.process
    assert process is not None
    rows = process.rows
    assert rows.sampling[point] > 0
    # That all rows have the same noise else is what is said of new ones.
    rows = replace(rows, noise=np.full_like(rows.noise, rows.noise.mean()))
    surrogate = replace(surrogate, process=replace(process, rows=rows))
    front = np.random.default_rng(4).uniform(0, 1, size=(7, 2))
    V, x = scaled(front, BOX), BOX.mean(axis=1) + rows.U[point] * np.ptp(BOX, axis=1)

    def slopes_at(W: np.ndarray) -> np.ndarray:
        return link.derivative(link.invert(surrogate.predict(W)))

    halved = np.where(np.arange(10) == point, rows.sampling / 2, rows.sampling)
    before, after = (
        Posterior(replace(rows, sampling=s), process.z, process.theta).at(V)[1] ** 2
        for s in (rows.sampling, halved)
    )
    fall = process.scale**2 * slopes_at(front) ** 2 * (before - after)
    stderr = np.sqrt(rows.sampling[point]) * process.scale * slopes_at(x[None])

    [found] = taught(surrogate, front, x[None], stderr, ~NEW[:1])

    assert found == pytest.approx(fall.mean(), rel=1e-4)


def test_more_documents_where_all_were_asked_teach_nothing() -> None:
    front, x = np.array([[0.2, 0.1], [0.8, 0.7]]), np.array([[0.5, 0.4]])

    assert taught(fitted(), front, x, np.zeros(1), ~NEW[:1]).tolist() == [0]


def test_what_is_measured_better_teaches_more() -> None:
    front, x = np.array([[0.2, 0.1], [0.8, 0.7]]), np.array([0.5, 0.4])

    stderr = np.array([0.0, 0.01, 0.1, 1.0, np.inf])

    found = taught(fitted(), front, np.tile(x, (5, 1)), stderr, NEW)

    assert (np.diff(found) < 0).all()
    assert found[-1] == 0


def test_a_surrogate_without_a_process_is_taught_nothing() -> None:
    surrogate = replace(fitted(), process=None)

    X, stderr = np.zeros((3, 2)), np.full(3, 0.1)
    found = taught(surrogate, np.zeros((1, 2)), X, stderr, NEW[:3])

    assert found.tolist() == [0, 0, 0]
