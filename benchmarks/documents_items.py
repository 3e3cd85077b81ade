"""Models of documents: what each says of a merge, given the merge's ability.

Two parameters in several dimensions (2PL) for right and wrong answers: the log-odds
are ``a · ability - b``, all normal, with the scales of ``a`` and ``b`` and the mean of
``b`` unknown, after the hierarchical priors of tinyBenchmarks (Maia Polo et al., ICML
2024). They fit hundreds of models by variational inference. From a handful we take the
mode, with the scales by EM because the joint mode collapses; abilities are held at mean
0 and spread 1, and ``a`` at mean 0, which nothing would bound otherwise.

For losses the same with a linear link and normal noise, which is probabilistic
principal components (Tipping and Bishop, 1999).

Notation: ``M`` merges, ``D`` documents, ``k`` dimensions of ability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

Array = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.intp]]

_ROUNDS = 15  # of EM


@dataclass(frozen=True)
class Items:
    """A model of documents, and the merges that it is fitted to."""

    loadings: Array  # (D, k)
    offsets: Array  # (D,)
    abilities: Array  # (M, k)
    variance: float | None  # of the noise; None: right or wrong

    def expected(self, ability: Array) -> Array:
        """Predict the values of all documents for an ability (k,)."""
        linear = self.loadings @ ability + self.offsets
        return linear if self.variance is not None else np.asarray(expit(linear))

    def embedding(self) -> Array:
        """Describe the documents by their parameters, (D, k + 1)."""
        return np.column_stack([self.loadings, self.offsets])

    def ability(
        self, documents: Indices, values: Array, basis: Array, centre: Array
    ) -> Array:
        """Estimate an ability (k,) that combines the rows of ``basis`` (r, k).

        The combination (r,) has a unit normal prior around ``centre``.
        """
        A, offsets = self.loadings[documents] @ basis.T, self.offsets[documents]
        if self.variance is not None:
            left = A.T @ A / self.variance + np.eye(len(centre))
            residuals = values - offsets - A @ centre
            step = np.linalg.solve(left, A.T @ residuals / self.variance)
            return np.asarray((centre + step) @ basis)

        def loss(weights: Array) -> tuple[float, Array]:
            linear, distance = A @ weights + offsets, weights - centre
            value = np.logaddexp(0, linear).sum() - values @ linear
            gradient = A.T @ (expit(linear) - values) + distance
            return float(value + distance @ distance / 2), gradient

        return np.asarray(minimize(loss, centre, jac=True, method="L-BFGS-B").x @ basis)


def fit_items(earlier: Array, dimensions: int, binary: bool) -> Items:
    """Fit the model of the documents to earlier values (M, D)."""
    gaussian = _principal_components(earlier, dimensions)
    return _fit_2pl(earlier, gaussian) if binary else gaussian


def _principal_components(earlier: Array, dimensions: int) -> Items:
    """Fit values as loadings times abilities plus normal noise, by closed form."""
    M, D = earlier.shape
    k = max(1, min(dimensions, M - 2))  # one is left to tell the noise
    offsets = earlier.mean(axis=0)
    _, spectrum, directions = np.linalg.svd(earlier - offsets, full_matrices=False)
    eigenvalues = spectrum**2 / M
    floor = 1e-9 * (eigenvalues[0] + 1e-9)
    variance = max(float(eigenvalues[k:].sum() / (D - k)), floor)
    scales = np.sqrt(np.maximum(eigenvalues[:k] - variance, floor))
    loadings = directions[:k].T * scales
    left = loadings.T @ loadings + variance * np.eye(k)
    abilities = np.linalg.solve(left, loadings.T @ (earlier - offsets).T).T
    return Items(loadings, offsets, abilities, variance)


def _fit_2pl(earlier: Array, start: Items) -> Items:
    """Fit log-odds as loadings times abilities plus offsets; the mode, scales by EM."""
    k, M = start.abilities.shape[1], len(earlier)
    means, scales = np.zeros(k + 1), np.ones(k + 1)  # the loadings' mean stays 0
    documents = np.column_stack([4 * start.loadings, 4 * start.offsets - 2])
    parameters = np.concatenate([start.abilities.ravel(), documents.ravel()])

    def unpacked(parameters: Array) -> tuple[Array, Array]:
        return parameters[: M * k].reshape(M, k), parameters[M * k :].reshape(-1, k + 1)

    def loss(parameters: Array) -> tuple[float, Array]:
        abilities, documents = unpacked(parameters)
        known = np.column_stack([abilities, np.ones(M)])
        linear = known @ documents.T
        residuals = expit(linear) - earlier
        standard = (documents - means) / scales
        value = np.logaddexp(0, linear).sum() - (earlier * linear).sum()
        value += ((abilities**2).sum() + (standard**2).sum()) / 2
        by_ability = residuals @ documents[:, :k] + abilities
        by_document = residuals.T @ known + standard / scales
        return value, np.concatenate([by_ability.ravel(), by_document.ravel()])

    for _ in range(_ROUNDS):
        parameters = minimize(loss, parameters, jac=True, method="L-BFGS-B").x
        abilities, documents = unpacked(parameters)
        # Nothing but the priors tells level and spread of the abilities from the
        # documents' parameters, and with few merges the mode moves both far away.
        centre, spread = abilities.mean(axis=0), abilities.std(axis=0) + 1e-3
        documents[:, k] += documents[:, :k] @ centre
        documents[:, :k] *= spread
        abilities[:] = (abilities - centre) / spread
        known = np.column_stack([abilities, np.ones(M)])
        right = expit(known @ documents.T)
        precisions = (right * (1 - right)).T @ known**2 + scales**-2.0
        means[k] = documents[:, k].mean()
        scales = np.sqrt(((documents - means) ** 2 + 1 / precisions).mean(axis=0))
    return Items(documents[:, :k], documents[:, k], abilities, None)
