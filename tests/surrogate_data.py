"""Metrics of known shape, for the tests of surrogates."""

from typing import Any

import numpy as np

from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.quadratic import Quadratic
from mergekit_map.surrogates.surrogate import Surrogate

IDENTITY, BOUNDED, HALF = Link(), Link(0.0, 1.0), Link(lower=2.0)
LINKS = [IDENTITY, BOUNDED, HALF, Link(upper=5.0)]


def unit(d: int) -> np.ndarray:
    return np.tile([0.0, 1.0], (d, 1))


def fit(
    X: np.ndarray,
    y: np.ndarray,
    link: Link = IDENTITY,
    kind: Any = "quadratic",
    **more: Any,
) -> Surrogate:
    """Fit values in the unit box, whose errors are unknown, unless told otherwise."""
    more = {"stderr": None, "bounds": unit(X.shape[1]), **more}
    return fit_surrogate(X, y, link=link, kind=kind, **more)


def random_quadratic(rng: np.random.Generator, d: int) -> Quadratic:
    A = rng.normal(size=(d, d)) / d
    return Quadratic(float(rng.normal()), rng.normal(size=d) / d, A + A.T)


def noisy_fit(link: Link, *, n: int = 14, d: int = 2, seed: int = 0) -> Surrogate:
    return fit(*noisy_data(link, n=n, d=d, seed=seed), link)


def noisy_data(
    link: Link, *, n: int = 14, d: int = 2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    y = link.apply(random_quadratic(rng, d).predict(X))
    return X, y + rng.normal(scale=0.02, size=n)
