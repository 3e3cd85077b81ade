"""Fit one metric's surrogate and say how far to trust it (section 3.1, eq. 2 to 5).

Notation: ``n`` evaluated merges, ``d`` coefficients, ``X`` (n, d) the coefficients,
``y`` (n,) one metric, larger is better, ``t = (d + 1)(d + 2) / 2`` terms. The quadratic
is fitted on coefficients scaled to [-1/2, 1/2] by the bounds of the search.

Beyond the paper: measured standard errors weigh the fit, derivatives join it, each fit
reports its exact leave-one-out R2, the terms may be shrunk, and a Gaussian process may
take what the quadratic leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.least_squares import (
    fit_terms,
    jacobian,
    leave_one_out,
    residuals,
    terms_covariance,
)
from mergekit_map.search.links import Link
from mergekit_map.search.observations import (
    Observations,
    check_distinct,
    check_identified,
    make_observations,
    scaled,
)
from mergekit_map.search.quadratic import quadratic_from_terms
from mergekit_map.search.shrinkage import shrink
from mergekit_map.search.surrogate import FitQuality, Surrogate

Kind: TypeAlias = Literal["quadratic", "regularized", "residual_gp"]


def fit_surrogate(
    X: FloatArray,
    y: FloatArray,
    *,
    stderr: FloatArray | None,
    link: Link,
    bounds: FloatArray,
    slopes: FloatArray | None = None,
    kind: Kind = "quadratic",
) -> Surrogate:
    """Fit the quadratic of one metric by weighted (nonlinear) least squares.

    Case 1 (identity link) is solved in closed form; the others by Levenberg-Marquardt
    from the closed-form fits of the inverted data. The paper weighs all points alike;
    we weigh by ``1 / (stderr**2 + mean(stderr**2))``: an accuracy of 0 or 1 has a
    standard error of 0 and would otherwise be the only point that counts.

    A slope across the whole box weighs as much as a value, unless the fit is
    regularized and the data say otherwise.

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
        slopes: (n, d) derivatives of the metric by the coefficients, rows of NaN
            where they were not measured.
        kind: "quadratic"; "regularized", which shrinks the terms as far as the data ask
            for and does with fewer points than terms; or "residual_gp", which adds a
            Gaussian process for what the regularized quadratic leaves.

    Raises:
        DesignError: X does not identify all t terms, with what is missing and why.
        ValueError: NaN or infinite values, negative standard errors, wrong shapes.
    """
    observed = make_observations(X, y, stderr, bounds, slopes)
    find = _find_terms if kind == "quadratic" else _find_shrunk_terms
    fit = find(X, observed, link)
    left_out = leave_one_out(fit.observed, link, fit.terms)
    fitted = Surrogate(
        quadratic=quadratic_from_terms(fit.terms, _centred(bounds)),
        link=link,
        bounds=bounds.copy(),
        covariance=_covariance(fit, stderr),
        quality=_quality(fit, left_out),
    )
    if kind != "residual_gp":
        return fitted
    return _with_residual(fitted, X, fit.observed, left_out)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The terms of a quadratic, and what they were found from."""

    observed: Observations  # shrunk, if the kind asks for it
    link: Link
    terms: FloatArray  # (t,)
    variance: float  # of a point of weight 1, NaN if unknown
    condition: float  # of the design


def _find_terms(X: FloatArray, observed: Observations, link: Link) -> _Fit:
    """Minimise the squares alone; what is left of them tells the variance."""
    condition = check_identified(X, observed)
    terms, variance = fit_terms(observed, link), math.nan
    freedom = observed.n_rows - len(terms)
    if freedom:
        variance = float((residuals(observed, link, terms) ** 2).sum()) / freedom
    return _Fit(observed, link, terms, variance, condition)


def _find_shrunk_terms(X: FloatArray, observed: Observations, link: Link) -> _Fit:
    """Shrink the terms as far as the data ask for, which also tells the variance."""
    check_distinct(X)
    shrunk, variance = shrink(observed, link, X.shape[1])
    flat = np.zeros(shrunk.features.shape[1])
    condition = _condition(jacobian(shrunk, Link(), flat))
    return _Fit(shrunk, link, fit_terms(shrunk, link), variance, condition)


def _covariance(fit: _Fit, stderr: FloatArray | None) -> FloatArray:
    rows = jacobian(fit.observed, fit.link, fit.terms)
    return terms_covariance(rows, fit.variance, _row_noise(fit.observed, stderr))


def _quality(fit: _Fit, left_out: FloatArray) -> FitQuality:
    observed, terms = fit.observed, fit.terms
    return FitQuality(
        n=len(observed.y),
        n_terms=len(terms),
        r2=_r_squared(observed.y, fit.link.apply(observed.features @ terms)),
        loo_r2=_r_squared(observed.y, left_out),
        condition=fit.condition,
        residual_stderr=math.sqrt(fit.variance),
    )


def _with_residual(
    fitted: Surrogate, X: FloatArray, observed: Observations, left_out: FloatArray
) -> Surrogate:
    # scikit-learn takes longer to import than all else here, and few fits ask for one.
    from mergekit_map.search.residual import fit_residual

    link, y = fitted.link, observed.y
    s = fitted.quadratic.predict(X)
    slope = np.maximum(link.derivative(s), 1e-6)  # 0 far out, where nothing can be told
    residual = fit_residual(scaled(X, fitted.bounds), (y - link.apply(s)) / slope)
    both = replace(fitted, residual=residual)
    # Of the process with its parameters as they are: refitting them, too, costs n fits.
    left_out = link.apply(link.invert(left_out) + residual.left_out())
    misses = y - both.predict(X)
    quality = replace(
        fitted.quality,
        r2=_r_squared(y, both.predict(X)),
        loo_r2=_r_squared(y, left_out),
        residual_stderr=math.sqrt(float((observed.weights * misses**2).mean())),
    )
    return replace(both, quality=quality)


def _row_noise(observed: Observations, stderr: FloatArray | None) -> FloatArray | None:
    """Give the weighted standard errors of the rows; None where a row has none."""
    if stderr is None or not stderr.any() or len(observed.slopes):
        return None
    unshrunk = np.zeros(len(observed.shrinkage))
    return np.concatenate([np.sqrt(observed.weights) * stderr, unshrunk])


def _condition(rows: FloatArray) -> float:
    singular = np.linalg.svd(rows, compute_uv=False)
    return float(singular[0] / singular[-1])


def _r_squared(y: FloatArray, predicted: FloatArray) -> float:
    scale = float(np.abs(y).max())
    if np.ptp(y) <= 1e-12 * scale:
        # A constant metric leaves nothing to explain: right or wrong is all there is.
        # The tolerance admits links, which cannot quite reach their own bounds.
        close = np.abs(y - predicted).max() <= 1e-5 * max(scale, 1.0)
        return math.nan if np.isnan(predicted).any() else float(close)
    total = ((y - y.mean()) ** 2).sum()
    return float(1 - ((y - predicted) ** 2).sum() / total)


def _centred(bounds: FloatArray) -> FloatArray:
    """Give the values that 0 and 1 of the scaled coefficients stand for: (d, 2)."""
    lower, upper = bounds.T
    centre = (lower + upper) / 2
    return np.column_stack([centre, centre + (upper - lower)])
