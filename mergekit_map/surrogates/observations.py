"""Measurements, checked and arranged as rows of least squares.

Notation: ``n`` evaluated merges, ``d`` coefficients, ``X`` (n, d) the coefficients,
``y`` (n,) one metric, ``t`` terms of the quadratic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray, to_unit
from mergekit_map.surrogates.quadratic import quadratic_features

# Singular values below this fraction of the largest count as zero: a design this close
# to degenerate would answer with the rounding of the coefficients.
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Observations:
    """Rows of a least-squares problem for the terms, with their weights."""

    U: FloatArray  # (n, d) scaled coefficients
    features: FloatArray  # (n, t)
    y: FloatArray  # (n,)
    weights: FloatArray  # (n,) positive, mean 1

    def without(self, point: int) -> Observations:
        """Return the observations without a point."""
        rest = np.arange(len(self.y)) != point
        return replace(
            self,
            U=self.U[rest],
            features=self.features[rest],
            y=self.y[rest],
            weights=self.weights[rest],
        )


def make_observations(X: FloatArray, y: FloatArray, bounds: FloatArray) -> Observations:
    """Arrange what ``fit_surrogate`` takes as rows, on scaled coefficients."""
    U = scaled(X, bounds)
    features = quadratic_features(U)
    return Observations(U, features, y, weights=np.ones_like(y))


def known_errors(stderr: FloatArray | None) -> FloatArray | None:
    """Fill standard errors (n,) so that all are positive; None where none is known.

    An error of 0, as of an accuracy of 0 or 1, becomes the smallest positive one. An
    unknown error, NaN, becomes the median of the known ones.
    """
    if stderr is None or not (stderr > 0).any():
        return None
    known = np.where(stderr == 0, stderr[stderr > 0].min(), stderr)
    return np.where(np.isnan(known), np.nanmedian(known), known)


def joined(stderr: FloatArray | None, sampling: FloatArray | None) -> FloatArray | None:
    """Add standard errors (n,) and those of a document subset (n,) in quadrature."""
    if stderr is None or sampling is None:
        return sampling if stderr is None else stderr
    return np.hypot(stderr, sampling)


def scaled(X: FloatArray, bounds: FloatArray) -> FloatArray:
    """Scale X (n, d) to [-1/2, 1/2] by the bounds (d, 2).

    Around 0, so that shrinking the terms favours no corner of the box.
    """
    return to_unit(X, bounds) - 0.5


def check_distinct(X: FloatArray) -> None:
    """Raise DesignError for fewer distinct merges than show any curvature.

    Raises:
        DesignError: with what is missing.
    """
    d, n_distinct = X.shape[1], len(np.unique(X, axis=0))
    if n_distinct < 3:
        raise DesignError(
            f"a surrogate in {d} coefficients needs at least 3 distinct merges, but "
            f"only {n_distinct} were evaluated; evaluate at least {3 - n_distinct} more"
        )


def check_identified(X: FloatArray, observed: Observations) -> None:
    """Raise DesignError for a design that does not identify every term.

    Raises:
        DesignError: with what is missing and why.
    """
    d, n_terms = X.shape[1], observed.features.shape[1]
    n_distinct = len(np.unique(X, axis=0))
    if n_distinct < n_terms:
        raise DesignError(
            f"a full quadratic in {d} coefficients has {n_terms} parameters, but only "
            f"{n_distinct} distinct merges were evaluated; evaluate at least "
            f"{n_terms - n_distinct} more"
        )
    singular = np.linalg.svd(observed.features, compute_uv=False)
    rank = int((singular > RANK_TOLERANCE * singular[0]).sum())
    if rank < n_terms:
        raise DesignError(
            f"{n_distinct} distinct merges identify only {rank} of {n_terms} "
            "parameters: the design is degenerate (weights that sum to 1, a fixed "
            "coefficient, two levels per coefficient) and more merges of the same "
            "kind will not help; free the coefficient or leave it out of the search"
        )
