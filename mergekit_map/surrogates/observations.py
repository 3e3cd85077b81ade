"""Measurements, checked and arranged as rows of least squares.

Notation: ``n`` evaluated merges, ``d`` coefficients, ``X`` (n, d) the coefficients,
``y`` (n,) one metric, ``t`` terms of the quadratic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray, IntArray, to_unit
from mergekit_map.surrogates.quadratic import quadratic_features, quadratic_slopes

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
    slope_features: FloatArray  # (k, t) derivatives of a point's features
    slopes: FloatArray  # (k,) of the metric, per unit of the scaled coefficient
    owners: IntArray  # (k,) the point that a slope was measured at
    shrinkage: FloatArray  # (t,) weight of "this term is 0"; 0 where a term is free
    slope_weight: float = 1.0  # of a slope across the whole box, beside a value

    @property
    def root_weights(self) -> tuple[FloatArray, FloatArray]:
        """Return the square roots of the weights of values (n,) and slopes (k,)."""
        root = np.sqrt(self.weights)
        return root, math.sqrt(self.slope_weight) * root[self.owners]

    @property
    def n_rows(self) -> int:
        """Count values and slopes."""
        return len(self.y) + len(self.slopes)

    def without(self, point: int) -> Observations:
        """Return the observations without a point, slopes included."""
        rest = np.arange(len(self.y)) != point
        kept = self.owners != point
        return replace(
            self,
            U=self.U[rest],
            features=self.features[rest],
            y=self.y[rest],
            weights=self.weights[rest],
            slope_features=self.slope_features[kept],
            slopes=self.slopes[kept],
            owners=self.owners[kept] - (self.owners[kept] > point),
        )


def make_observations(
    X: FloatArray, y: FloatArray, bounds: FloatArray, slopes: FloatArray | None
) -> Observations:
    """Arrange what ``fit_surrogate`` takes as rows, on scaled coefficients."""
    U = scaled(X, bounds)
    features = quadratic_features(U)
    d, n_terms = X.shape[1], features.shape[1]
    owners: IntArray = np.empty(0, dtype=np.int_)
    slope_features, seen = np.empty((0, n_terms)), np.empty(0)
    if slopes is not None:
        measured = np.flatnonzero(np.isfinite(slopes).all(axis=1))
        owners = np.repeat(measured, d)
        width = bounds[:, 1] - bounds[:, 0]
        seen = (slopes[measured] * width).ravel()
        slope_features = quadratic_slopes(U[measured]).reshape(-1, n_terms)
    return Observations(
        U=U,
        features=features,
        y=y,
        weights=np.ones_like(y),
        slope_features=slope_features,
        slopes=seen,
        owners=owners,
        shrinkage=np.zeros(n_terms),
    )


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

    Around 0, so that shrinking slopes and curvatures favours no corner of the box.
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


def check_identified(X: FloatArray, observed: Observations) -> float:
    """Return the condition number of a design that identifies every term.

    Raises:
        DesignError: it does not, with what is missing and why.
    """
    d, n_terms = X.shape[1], observed.features.shape[1]
    n_distinct = len(np.unique(X, axis=0))
    slopes = len(observed.slopes)
    if not slopes and n_distinct < n_terms:
        raise DesignError(
            f"a full quadratic in {d} coefficients has {n_terms} parameters, but only "
            f"{n_distinct} distinct merges were evaluated; evaluate at least "
            f"{n_terms - n_distinct} more"
        )
    rows = np.vstack([observed.features, observed.slope_features])
    singular = np.linalg.svd(rows, compute_uv=False)
    rank = int((singular > RANK_TOLERANCE * singular[0]).sum()) if len(rows) else 0
    if rank < n_terms and slopes:
        raise DesignError(
            f"{n_distinct} distinct merges and {slopes} slopes identify only {rank} of "
            f"{n_terms} parameters; evaluate more merges"
        )
    if rank < n_terms:
        raise DesignError(
            f"{n_distinct} distinct merges identify only {rank} of {n_terms} "
            "parameters: the design is degenerate (weights that sum to 1, a fixed "
            "coefficient, two levels per coefficient) and more merges of the same "
            "kind will not help; free the coefficient or leave it out of the search"
        )
    return float(singular[0] / singular[-1])
