"""Metrics of known shape, for the tests of surrogates and of their fronts."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from mergekit_map.surrogates.fit import Surrogate, fit_surrogate
from mergekit_map.surrogates.quadratic import Link

Predict: TypeAlias = Callable[[np.ndarray], np.ndarray]  # (n, d) to (n, m), or (n,)

IDENTITY, BOUNDED, HALF = Link(), Link(0.0, 1.0), Link(lower=2.0)
LINKS = [IDENTITY, BOUNDED, HALF, Link(upper=5.0)]


def quadratic(intercept: float, linear: np.ndarray, hessian: np.ndarray) -> Predict:
    """Return ``intercept + linear @ x + x @ hessian @ x / 2`` for rows x."""
    return lambda X: intercept + X @ linear + (X @ hessian * X).sum(axis=1) / 2


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


def random_quadratic(rng: np.random.Generator, d: int) -> Predict:
    A = rng.normal(size=(d, d)) / d
    return quadratic(float(rng.normal()), rng.normal(size=d) / d, A + A.T)


def noisy_data(link: Link, *, n: int = 14, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, d))
    return X, link.apply(random_quadratic(rng, d)(X)) + rng.normal(scale=0.02, size=n)


def sphere_front(n: int, m: int, seed: int = 0) -> np.ndarray:
    """Points of a part of a sphere, larger is better; none dominates another."""
    Y = np.abs(np.random.default_rng(seed).normal(size=(n, m)))
    return Y / np.linalg.norm(Y, axis=1, keepdims=True)


def bowls(centres: np.ndarray) -> Predict:
    """One task per centre (m, d): minus the squared distance to it."""
    return lambda X: -((X[:, None] - centres) ** 2).sum(axis=2)
