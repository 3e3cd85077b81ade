"""Fit one metric's surrogate and say how far to trust it (section 3.1, eq. 2 to 5).

Notation: ``n`` evaluated merges, ``d`` coefficients, ``X`` (n, d) the coefficients,
``y`` (n,) one metric, larger is better, ``t = (d + 1)(d + 2) / 2`` terms. The quadratic
is fitted on coefficients scaled to [0, 1] by the bounds of the search.

Beyond the paper: measured standard errors weigh the fit, predictions carry standard
errors, and each fit reports its exact leave-one-out R2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mergekit_map.errors import DesignError
from mergekit_map.search.least_squares import (
    RANK_TOLERANCE,
    fit_terms,
    leave_one_out,
    terms_covariance,
)
from mergekit_map.search.links import Link
from mergekit_map.search.quadratic import (
    Quadratic,
    quadratic_features,
    quadratic_from_terms,
)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class FitQuality:
    """How far to trust a fit; NaN where the number of points leaves it undefined."""

    n: int  # evaluated merges
    n_terms: int  # parameters of the quadratic
    r2: float  # on the fitted points, in the metric's units, unweighted
    loo_r2: float  # each point predicted by the fit without it; NaN if none can be
    condition: float  # of the design: largest over smallest singular value
    residual_stderr: float  # of a point of average weight; NaN if n == n_terms


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A metric as a function of the coefficients, with its uncertainty."""

    quadratic: Quadratic  # in the user's own coefficients
    link: Link
    bounds: FloatArray  # (d, 2), the ends that 0 and 1 stand for in the covariance
    covariance: FloatArray  # (t, t) of the terms on scaled coefficients
    quality: FitQuality

    def predict(self, X: FloatArray) -> FloatArray:
        """Predict the metric, in its own units, at every row of X (k, d)."""
        return self.link.apply(self.quadratic.predict(X))

    def stderr(self, X: FloatArray) -> FloatArray:
        """Return the standard error of the predicted mean at every row of X (k, d).

        By the delta method, in the metric's units: the fit's own uncertainty, without
        the noise of a new measurement or the error of the quadratic shape. NaN where
        the covariance is unknown.
        """
        features = _scaled_features(X, self.bounds)
        variance: FloatArray = ((features @ self.covariance) * features).sum(axis=1)
        slope = self.link.derivative(self.quadratic.predict(X))
        # Rounding may leave a variance of zero slightly negative.
        return slope * np.sqrt(np.maximum(variance, 0))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists, valid strict JSON: null is NaN or unbounded.

        ``from_dict`` of it, through JSON or not, predicts bit for bit the same.
        """
        return {
            "intercept": self.quadratic.intercept,
            "linear": self.quadratic.linear.tolist(),
            "hessian": self.quadratic.hessian.tolist(),
            "link": {
                "lower": _null_unless_finite(self.link.lower),
                "upper": _null_unless_finite(self.link.upper),
            },
            "bounds": self.bounds.tolist(),
            "covariance": [
                [_null_unless_finite(entry) for entry in row]
                for row in self.covariance.tolist()
            ],
            "quality": {
                name: _null_unless_finite(value)
                for name, value in asdict(self.quality).items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Surrogate:
        """Rebuild what ``to_dict`` wrote; KeyError names what is missing."""
        link, quality = data["link"], data["quality"]
        return cls(
            quadratic=Quadratic(
                intercept=float(data["intercept"]),
                linear=np.array(data["linear"], dtype=np.float64),
                hessian=np.array(data["hessian"], dtype=np.float64),
            ),
            link=Link(
                lower=-math.inf if link["lower"] is None else float(link["lower"]),
                upper=math.inf if link["upper"] is None else float(link["upper"]),
            ),
            bounds=np.array(data["bounds"], dtype=np.float64),
            covariance=np.array(data["covariance"], dtype=np.float64),  # None is NaN
            quality=FitQuality(
                n=int(quality["n"]),
                n_terms=int(quality["n_terms"]),
                r2=_nan_if_null(quality["r2"]),
                loo_r2=_nan_if_null(quality["loo_r2"]),
                condition=_nan_if_null(quality["condition"]),
                residual_stderr=_nan_if_null(quality["residual_stderr"]),
            ),
        )


def fit_surrogate(
    X: FloatArray,
    y: FloatArray,
    *,
    stderr: FloatArray | None,
    link: Link,
    bounds: FloatArray,
) -> Surrogate:
    """Fit the quadratic of one metric by weighted (nonlinear) least squares.

    Case 1 (identity link) is solved in closed form; the others by Levenberg-Marquardt
    from the closed-form fits of the inverted data. The paper weighs all points alike;
    we weigh by ``1 / (stderr**2 + mean(stderr**2))``: an accuracy of 0 or 1 has a
    standard error of 0 and would otherwise be the only point that counts.

    A metric that is constant over all points is fitted like any other; its R2 is 1 if
    the residuals are rounding, else 0. Repeated rows are used, but only distinct ones
    count towards identifying the quadratic. Values outside the link's range are used
    as they are.

    Args:
        X: (n, d) coefficients, inside the bounds or not.
        y: (n,) metric values; the caller leaves out merges that failed.
        stderr: (n,) their standard errors; None or all 0 gives equal weights.
        link: The range of the metric.
        bounds: (d, 2) the box of the search, used as the unit of each coefficient.

    Raises:
        DesignError: X does not identify all t terms, with what is missing and why.
        ValueError: NaN or infinite values, negative standard errors, wrong shapes.
    """
    _check_data(X, y, stderr, bounds)
    features = _scaled_features(X, bounds)
    condition = _check_identified(X, features)
    weights = _weights(y, stderr)
    terms = fit_terms(features, y, weights, link)
    predicted = link.apply(features @ terms)
    left_out = leave_one_out(features, y, weights, link, terms)
    freedom = len(y) - len(terms)
    variance = float(weights @ (y - predicted) ** 2) / freedom if freedom else math.nan
    jacobian = link.derivative(features @ terms)[:, None] * features
    return Surrogate(
        quadratic=quadratic_from_terms(terms, bounds),
        link=link,
        bounds=bounds.copy(),
        covariance=terms_covariance(jacobian, weights, variance, stderr),
        quality=FitQuality(
            n=len(y),
            n_terms=len(terms),
            r2=_r_squared(y, predicted),
            loo_r2=_r_squared(y, left_out),
            condition=condition,
            residual_stderr=math.sqrt(variance),
        ),
    )


def _check_data(
    X: FloatArray, y: FloatArray, stderr: FloatArray | None, bounds: FloatArray
) -> None:
    if X.ndim != 2 or y.shape != (len(X),) or bounds.shape != (X.shape[1], 2):
        raise ValueError(
            f"X (n, d), y (n,) and bounds (d, 2) do not fit together: {X.shape}, "
            f"{y.shape}, {bounds.shape}"
        )
    if not (np.isfinite(bounds).all() and (bounds[:, 0] < bounds[:, 1]).all()):
        raise ValueError(f"bounds must be finite and increasing, got {bounds.tolist()}")
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise ValueError("X and y must be finite: leave out the merges that failed")
    if stderr is None:
        return
    if stderr.shape != y.shape:
        raise ValueError(f"stderr must be {y.shape} like y, got {stderr.shape}")
    if not (np.isfinite(stderr).all() and (stderr >= 0).all()):
        raise ValueError("standard errors must be finite and not negative")


def _check_identified(X: FloatArray, features: FloatArray) -> float:
    """Return the condition number of a design that identifies every term."""
    d, n_terms = X.shape[1], features.shape[1]
    n_distinct = len(np.unique(X, axis=0))
    if n_distinct < n_terms:
        raise DesignError(
            f"a full quadratic in {d} coefficients has {n_terms} parameters, but only "
            f"{n_distinct} distinct merges were evaluated; evaluate at least "
            f"{n_terms - n_distinct} more"
        )
    singular = np.linalg.svd(features, compute_uv=False)
    rank = int((singular > RANK_TOLERANCE * singular[0]).sum())
    if rank < n_terms:
        raise DesignError(
            f"{n_distinct} distinct merges identify only {rank} of {n_terms} "
            "parameters: the design is degenerate (weights that sum to 1, a fixed "
            "coefficient, two levels per coefficient) and more merges of the same "
            "kind will not help; free the coefficient or leave it out of the search"
        )
    return float(singular[0] / singular[-1])


def _weights(y: FloatArray, stderr: FloatArray | None) -> FloatArray:
    """Return weights of mean 1, so that variances stay in the metric's units."""
    if stderr is None or not stderr.any():
        return np.ones_like(y)
    # Relative to the largest one: the squares of tiny standard errors would underflow.
    relative = (stderr / stderr.max()) ** 2
    weights = 1 / (relative + relative.mean())
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def _r_squared(y: FloatArray, predicted: FloatArray) -> float:
    scale = float(np.abs(y).max())
    if np.ptp(y) <= 1e-12 * scale:
        # A constant metric leaves nothing to explain: right or wrong is all there is.
        # The tolerance admits links, which cannot quite reach their own bounds.
        close = np.abs(y - predicted).max() <= 1e-5 * max(scale, 1.0)
        return math.nan if np.isnan(predicted).any() else float(close)
    total = ((y - y.mean()) ** 2).sum()
    return float(1 - ((y - predicted) ** 2).sum() / total)


def _scaled_features(X: FloatArray, bounds: FloatArray) -> FloatArray:
    lower, upper = bounds.T
    return quadratic_features((X - lower) / (upper - lower))


def _null_unless_finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _nan_if_null(value: float | None) -> float:
    return math.nan if value is None else float(value)
