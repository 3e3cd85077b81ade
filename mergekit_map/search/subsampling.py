"""A metric on all documents of a task, estimated from a random subset of them.

Every merge is measured on the same subset. The reference models (base, single models
and soup) are measured on all documents. A merge scores documents much like them, so
that its scores are regressed on theirs, and the mean of the fitted scores over all
documents, plus the mean residual of the subset, estimates the metric (the regression
estimator: Cochran, Sampling Techniques, 1977, chapter 7; in other words control
variates). Its bias is of the order of 1 / n, beside an error of 1 / sqrt(n). Right and
wrong answers are regressed as numbers, too.

Notation: ``D`` documents, ``n`` of them in the subset; ``w`` (D,) their weights, such
as tokens, with mean 1; ``y`` (n,) the scores of the merge, of which the metric is
``sum(w y) / D``; ``X`` (D, q) the scores of the reference models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from mergekit_map.surrogates.arrays import BoolArray, FloatArray
from mergekit_map.types import Answers, Measurement

# What the penalty of the regression is chosen from, as multiples of the mean square
# that the references have along their principal axes: from hardly any to all.
_PENALTIES = (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, math.inf)
_Z = 1.96  # of a 95 % interval
# Right and wrong answers may be predicted so well that a subset shows no exception.
# Half a document is added to the squares, as Jeffreys' prior adds half a success.
_UNSEEN = 0.5
# Residuals of losses have long tails, with a kurtosis of about 6. Their variance is
# known as well as that of this share of as many normal residuals: 2 / (6 - 1).
_NORMAL = 0.4


@dataclass(frozen=True, eq=False)
class Subset:
    """The documents that merges are measured on, and what the references score."""

    ids: tuple[int, ...]  # (n,) rising
    references: FloatArray  # (D, q)
    weights: FloatArray  # (D,) positive
    exponential: bool  # whether the metric is exp of the weighted mean

    def estimate(self, measured: Measurement, ends: tuple[float, float]) -> Measurement:
        """Return the measurement that all documents would give, estimated.

        ``sampling`` is the standard error of the choice of documents, of the value
        minus that on all of them: 0 where the subset is all. ``stderr`` is, as on all
        documents, that of the value if documents are draws of a larger population; it
        includes ``sampling``. The value is clipped to the ``ends`` of the range of the
        metric, and NaN where a score is.
        """
        assert measured.answers is not None
        y = np.array(measured.answers.values, np.float64)
        if not np.isfinite(y).all():
            return replace(
                measured, value=math.nan, stderr=None, details={}, sampling=0.0
            )
        w, size = self.weights / self.weights.mean(), len(self.weights)
        subset = [*self.ids]
        fit = _regress(y, subset, self.references, w)
        scores = np.unique([*y, *self.references.flat])
        right = np.ptp(scores) or (ends[1] if 0.0 < ends[1] < math.inf else 1.0)
        is_binary = len(scores) == 2 or {*abs(scores)} <= {0.0, right}
        sampling = _sampling_error(fit, size, right if is_binary else 0.0)
        # The jackknife of the mean of all documents, from the residuals of the subset.
        # Where that is all of them, it is ``ratio_stderr``.
        changes = w[subset] * (y - fit.value) / (size - w[subset])
        population = math.sqrt(size - 1) * float(changes.std())
        value = math.exp(fit.value) if self.exponential else fit.value
        slope = value if self.exponential else 1.0  # of the metric by the mean
        return replace(
            measured,
            value=min(max(value, ends[0]), ends[1]),
            stderr=slope * math.hypot(population, sampling),
            details={},  # of the subset alone
            sampling=slope * sampling,
        )


def draw_subset(
    count: int, references: Sequence[Answers], rng: np.random.Generator
) -> Subset | None:
    """Draw documents of a task; None where a subset would be all of them.

    ``references`` are the scores of one or more reference models on all documents. With
    the same generator, that of the task, a smaller count is a part of a larger one.
    """
    first = references[0]
    size = len(first.ids)
    if count >= size:
        return None
    whole = [one for one in references if len(one.ids) == size]
    return Subset(
        ids=tuple(sorted(rng.permutation(size)[:count].tolist())),
        references=np.array([one.values for one in whole], np.float64).T,
        weights=np.array(first.weights, np.float64),
        exponential=first.exponential,
    )


@dataclass(frozen=True, eq=False)
class _Fit:
    value: float  # mean over all documents
    left_out: FloatArray  # (n,) weighted residuals, each of a fit without its document
    freedom: float  # degrees of freedom of the residuals


def _regress(y: FloatArray, subset: list[int], X: FloatArray, w: FloatArray) -> _Fit:
    """Fit a weighted ridge regression whose prior is the mean score of the references.

    With ``t = y - mean(X)``, both centred by their weighted means over the subset, the
    coefficients ``b`` minimise ``sum(w (t - X b)^2) + penalty |b|^2``. The penalty is
    the one with the least sum of squared leave-one-out residuals. ``w`` (D,) has the
    weights of all documents.
    """
    mean_reference = X.mean(axis=1)
    t = y - mean_reference[subset]
    w_subset = w[subset]
    share = w_subset / w_subset.sum()
    root = np.sqrt(w_subset)
    X_centre = share @ X[subset]
    t_centre = float(share @ t)
    # U diag(s) Vt is the weighted design. A ridge keeps the share s^2 / (s^2 + penalty)
    # of an effect along an axis, and nothing where the references do not differ.
    design = root[:, None] * (X[subset] - X_centre)
    U, s, Vt = np.linalg.svd(design, full_matrices=False)
    differs: BoolArray = s > 1e-9 * s.max(initial=0.0)
    s_safe = np.where(differs, s, 1.0)
    mean_square = float((s**2).mean())
    projected = U.T @ (root * (t - t_centre))

    def fit(penalty: float) -> _Fit:
        kept = np.where(differs, 1 / (1 + penalty * mean_square / s_safe**2), 0.0)
        residuals = t - t_centre - U @ (kept * projected) / root
        leverage = share + U**2 @ kept
        coefficients = Vt.T @ (kept / s_safe * projected)
        fitted = mean_reference + t_centre + (X - X_centre) @ coefficients
        return _Fit(
            value=float(w @ fitted) / len(w),
            left_out=len(share) * share * residuals / np.maximum(1 - leverage, 1e-6),
            freedom=len(y) - 1 - float(kept.sum()),
        )

    return min(map(fit, _PENALTIES), key=lambda f: float(f.left_out @ f.left_out))


def _sampling_error(fit: _Fit, size: int, right: float) -> float:
    """Return the standard error of the choice of n of ``size`` documents.

    It is the standard error of a mean of n residuals, with the correction for a finite
    population, times Student's over the normal 97.5 % point. ``right`` is what a right
    answer scores more than a wrong one, and 0 for other scores.
    """
    n = len(fit.left_out)
    squares = float(fit.left_out @ fit.left_out) + _UNSEEN * right**2
    variance = (1 - n / size) * squares / n**2
    freedom = fit.freedom if right else _NORMAL * fit.freedom
    return math.sqrt(variance) * float(stdtrit(max(freedom, 1.0), 0.975)) / _Z
