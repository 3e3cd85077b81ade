"""A metric from a part of the documents: who is asked, and what follows for all.

Notation: ``D`` documents, ``w`` (D,) their weights, positive; ``y`` (D,) their values,
of which the metric is the mean ``sum(w y) / sum(w)``; ``pi`` (D,) chances to be asked,
each by itself (Poisson sampling); ``u`` (D,) uniform random numbers of a merge, so that
asked are those with u < pi. The numbers u are drawn once for each merge and kept: with
larger chances the documents of before are asked again, and some more.

A prediction m is corrected by those that were asked (the difference estimator: Särndal,
Swensson and Wretman, Model Assisted Survey Sampling, 1992, section 6.3; in other words
doubly robust, or prediction-powered inference, Angelopoulos et al., Science 382, 2023):

    value = sum(w (m + [asked] (y - m) / pi)) / sum(w)

For each document m is what was foreseen plus a shift, and the shift is learnt from the
*other* documents that were asked (Wu and Gagnon-Bartsch, Evaluation Review 42, 2018).
Whether a document is asked is independent of the others, so that the value is unbiased
in any sample size and however bad the foresight is, as long as u is independent of it:
chances and foresight must not depend on what this merge said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtrit

from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.foresight import Foresight

UNIFORM = 0.25  # of the documents asked, these are chosen whatever is foreseen
# Degrees of freedom that foreseen errors count as: of losses, of answers.
_OF_LOSSES, _OF_ANSWERS = 8.0, 12.0
_TILT = 0.5  # how much of an error may go along with a feature
_KURTOSIS = 6.0  # of errors of losses


@dataclass(frozen=True)
class PartValue:
    """A metric estimated from a part of the documents."""

    value: float
    stderr: float  # of the choice of documents; 0 where all were asked
    spread: float  # as a mean of D documents that are draws themselves
    asked: int


@dataclass(frozen=True, eq=False)
class _Errors:
    """How far predictions are expected to be off."""

    sigma: FloatArray  # (D,) standard deviations
    fourth: FloatArray  # (D,) fourth moments
    believed: float  # degrees of freedom that these are known with


def chances(
    count: float,
    weights: FloatArray,
    foresight: Foresight,
    *,
    uniform: float = UNIFORM,
) -> FloatArray:
    """Give each document a chance to be asked, such that about ``count`` are; (D,).

    In proportion to weight times foreseen error, as Neyman's allocation, but for a part
    that is the same for all.

    Args:
        count: The expected number; from D on all are asked.
        weights: (D,) positive.
        foresight: Of this merge, from other merges.
        uniform: How much of it is the same for all, above 0 and up to 1.
    """
    D = len(weights)
    if count >= D:
        return np.ones(D)
    needed = weights * foresight.deviation
    total = float(needed.sum())
    part = needed / total if total > 0 else np.full(D, 1 / D)
    shares = uniform / D + (1 - uniform) * part

    def excess(factor: float) -> float:
        return float(np.minimum(factor * shares, 1.0).sum()) - count

    factor = brentq(excess, 0.0, 1 / shares.min(), xtol=1e-12, rtol=1e-14)
    return np.minimum(factor * shares, 1.0)


def grown(chances: FloatArray, before: FloatArray) -> FloatArray:
    """Join chances (D,) with those at which documents were asked ``before``; (D,).

    Exact for all that are asked now: a document that was not asked before, 0 there, is
    asked now if its new chance is the larger one, and else it is not asked again.
    """
    return np.maximum(chances, before)


def drawn(chances: FloatArray, u: FloatArray) -> IntArray:
    """List who is asked, rising; u (D,) uniform in [0, 1), the same as before."""
    return np.flatnonzero(u < chances)


def estimate(
    ids: IntArray,
    values: FloatArray,
    chances: FloatArray,
    foresight: Foresight,
    weights: FloatArray,
    *,
    exponential: bool = False,
) -> PartValue:
    """Estimate the mean over all documents from those that were asked.

    Unbiased over u; of an ``exponential`` to first order. With nobody asked it is what
    was foreseen, and from all documents it is exact, with a standard error of 0.

    Args:
        ids: (n,) those asked, n of 0 to D, as ``drawn`` with these chances.
        values: (n,) what they said, finite.
        chances: (D,) above 0.
        foresight: The one that the chances came from, or another one from other merges.
        weights: (D,) positive.
        exponential: Whether the metric is exp of the mean.
    """
    w = weights / weights.sum()
    pi, sigma = chances[ids], _errors(foresight)
    off = values - foresight.mean[ids]
    X, prior = _covariates(foresight, sigma)
    terms, left, known = _regression(off, X[ids], sigma[ids], prior)
    predicted = foresight.mean + X @ terms
    predicted[ids] = values - left
    value = float(w @ predicted + (w[ids] / pi) @ left)
    # What is foreseen of an error is without what all have in common.
    sigma = np.sqrt(sigma**2 + known[0, 0])
    believed = _OF_ANSWERS if foresight.answers else _OF_LOSSES
    errors = _Errors(sigma, _fourth(sigma, foresight), believed)
    stderr = _stderr(w, chances, ids, left, errors)
    spread = _spread(w, chances, ids, values - value, predicted - value, sigma)
    if exponential:
        value = math.exp(value)
        stderr, spread = stderr * value, spread * value
    return PartValue(value, stderr, spread, len(ids))


def wanted_count(foresight: Foresight, weights: FloatArray, target: float) -> float:
    """Say how many documents to expect to ask for a standard error, in 0 to D."""
    D, w, sigma = len(weights), weights / weights.sum(), _errors(foresight)

    def excess(count: float) -> float:
        pi = chances(count, weights, foresight)
        return math.sqrt(float(w**2 @ ((1 / pi - 1) * sigma**2))) - target

    few = 1e-6 * D
    if target <= 0:
        return float(D)
    return few if excess(few) <= 0 else float(brentq(excess, few, D, xtol=1e-3))


def _errors(foresight: Foresight) -> FloatArray:
    """Give the foreseen errors; none is so small that others do not count at all.

    Where no error is foreseen at all, it is one of rounding.
    """
    sigma, size = foresight.deviation, float(np.abs(foresight.mean).max())
    return np.maximum(sigma, max(1e-3 * float(sigma.max()), 1e-9 * size, 1e-30))


def _covariates(
    foresight: Foresight, sigma: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Give what errors are regressed on (D, q), and how large terms may be (q,)."""
    D = len(sigma)
    features = foresight.features if len(foresight.features) else np.zeros((D, 0))
    common = max(foresight.common, 1e-3 * float(sigma.min()))
    tilt = _TILT * float(np.sqrt((sigma**2).mean()))
    prior = np.concatenate([[common], np.full(features.shape[1], tilt)])
    return np.hstack([np.ones((D, 1)), features]), prior


def _regression(
    off: FloatArray, X: FloatArray, sigma: FloatArray, prior: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Regress errors on covariates, drawn to 0 as far as they were expected there.

    Returns:
        The terms (q,) from all documents; what is left of each error (n,) with terms
        from all others; the covariance of the terms.
    """
    Z, vague = X / sigma[:, None], np.diag(1 / prior**2)
    products, pulls = Z[:, :, None] * Z[:, None, :], Z * (off / sigma)[:, None]
    known = np.asarray(np.linalg.inv(vague + products.sum(axis=0)), np.float64)
    of_others = np.linalg.solve(vague + _others(products), _others(pulls)[:, :, None])
    left = off - (X * of_others[:, :, 0]).sum(axis=1)
    return known @ pulls.sum(axis=0), np.asarray(left), known


def _others(parts: FloatArray) -> FloatArray:
    """Add up all parts (n, ...) but one, for each; never as a difference of sums."""
    none = np.zeros_like(parts[:1])
    before = np.concatenate([none, parts[:-1]]).cumsum(axis=0)
    after = np.concatenate([none, parts[:0:-1]]).cumsum(axis=0)[::-1]
    return np.asarray((before + after)[: len(parts)])


def _fourth(sigma: FloatArray, foresight: Foresight) -> FloatArray:
    """Give the foreseen fourth moments of errors; (D,)."""
    if not foresight.answers:
        return np.asarray(_KURTOSIS * sigma**4)
    p = foresight.mean
    return np.asarray(p * (1 - p) ** 4 + (1 - p) * p**4 + sigma**4)


def _stderr(
    w: FloatArray,
    pi: FloatArray,
    ids: IntArray,
    left: FloatArray,
    errors: _Errors,
) -> float:
    """Join what the documents asked say of the variance with what was foreseen.

    The variance that was foreseen, times how much larger the squares of errors are than
    foreseen: as seen, if the sum of squares had many degrees of freedom, else 1. Then
    as much larger as Student's t is than a normal, at 95 %.
    """
    each = (1 - pi) / pi * w**2
    foreseen = each * errors.sigma**2
    total = float(foreseen.sum())
    if total <= 0:
        return 0.0
    noise = float((each**2 / pi * errors.fourth - foreseen**2).sum())
    freedom = 2 * total**2 / max(noise, 1e-12 * total**2)
    believed = errors.believed / freedom * total
    seen = float((each[ids] / pi[ids] * left**2).sum())
    expected = float((foreseen[ids] / pi[ids]).sum())
    variance = total * (believed + seen) / (believed + expected)
    return math.sqrt(variance) * float(stdtrit(errors.believed + freedom, 0.975)) / 1.96


def _spread(
    w: FloatArray,
    pi: FloatArray,
    ids: IntArray,
    values: FloatArray,
    predicted: FloatArray,
    sigma: FloatArray,
) -> float:
    """Estimate the standard error of the ratio if documents are draws themselves.

    From what documents said (n,) and were predicted (D,) to say, less the ratio.
    """
    D = len(w)
    if D < 2:
        return 0.0
    squares = w**2 * (predicted**2 + sigma**2)
    foreseen = float(squares.sum())
    seen = (w[ids] * values) ** 2
    total = foreseen + float(((seen - squares[ids]) / pi[ids]).sum())
    least = float(seen.sum())
    return math.sqrt(max(total, least) * D / (D - 1))
