"""Metrics of known shape, for the tests of surrogates and of their fronts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mergekit_map.surrogates.fit import Surrogate, fit_surrogate
from mergekit_map.surrogates.quadratic import Link

Predict: TypeAlias = Callable[[np.ndarray], np.ndarray]  # (n, d) to (n, m)

IDENTITY, BOUNDED, HALF = Link(), Link(0.0, 1.0), Link(lower=2.0)
LINKS = [IDENTITY, BOUNDED, HALF, Link(upper=5.0)]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``s(x) = intercept + linear @ x + x @ hessian @ x / 2``, hessian symmetric."""

    intercept: float
    linear: np.ndarray
    hessian: np.ndarray

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.intercept + X @ self.linear + (X @ self.hessian * X).sum(axis=1) / 2


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


def bowls(centres: np.ndarray) -> Predict:
    """One task per centre (m, d): minus the squared distance to it."""
    return lambda X: -((X[:, None] - centres) ** 2).sum(axis=2)


def random_bowls(d: int, m: int, seed: int) -> Predict:
    """Losses like those of models that are each at its best near its own weight 1."""
    rng = np.random.default_rng([seed, d, m])
    centres = np.eye(m, d) + rng.normal(scale=0.15, size=(m, d))
    A = rng.normal(scale=0.5, size=(m, d, d))
    A = A @ A.transpose(0, 2, 1) + np.eye(d) * rng.uniform(0.3, 1.5, size=(m, 1, 1))

    def predict(X: np.ndarray) -> np.ndarray:
        apart = X[:, None] - centres
        return -np.einsum("kmi,mij,kmj->km", apart, A, apart)

    return predict
