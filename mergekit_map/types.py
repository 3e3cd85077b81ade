"""Measurements of tasks on merged models, and the metrics of tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

BASE = "base"
SOUP = "soup"
NO_SINGLE_MODEL = frozenset({BASE, SOUP})
SIGNIFICANT = 2.0  # standard errors of a difference beyond those that noise explains
NATS = "nats/token"  # the unit of mean token losses
# Which fit predicts: the paper's, with priors, with a Gaussian process, or the better.
SurrogateKind: TypeAlias = Literal["auto", "quadratic", "regularized", "residual_gp"]
DTYPES = ("bfloat16", "float16", "float32", "float64")  # of merges


@dataclass(frozen=True)
class Answers:
    """The score of each document of a model.

    On all documents, the metric is the mean of ``values`` with these ``weights``, or
    its exponential.
    """

    ids: tuple[int, ...]  # (n,) which of all documents, counted from 0, rising
    values: tuple[float, ...]  # (n,)
    weights: tuple[float, ...]  # (n,) positive, in a unit that all documents share
    exponential: bool = False

    @property
    def whole(self) -> bool:
        """Whether they begin with the first document and leave none out."""
        return self.ids[-1:] == (len(self.ids) - 1,)

    @property
    def mean(self) -> float:
        """Return the mean, or its exponential; infinite where that is too large."""
        products = (w * v for w, v in zip(self.weights, self.values, strict=True))
        total = math.fsum(self.weights)
        mean = math.fsum(products) / total if total else math.nan
        try:
            return math.exp(mean) if self.exponential else mean
        except OverflowError:
            return math.inf


@dataclass(frozen=True)
class Measurement:
    """A metric of one model, in the task's own units and direction."""

    value: float
    # Standard error of ``value`` if the documents are draws of a larger population;
    # None where it is unknown.
    stderr: float | None
    n: int  # how many documents, blocks or items the value is a mean of
    details: Mapping[str, float] = field(default_factory=dict)  # other readings
    samples: tuple[Mapping[str, Any], ...] = ()  # one JSON-able record per item
    answers: Answers | None = None  # where the value is a mean of them
    seconds: float | None = None  # it took, with the merge if there was none yet
    # The part of ``stderr`` that a choice of documents adds: the standard error of
    # ``value`` as an estimate of that on all of them. None where all were measured.
    sampling: float | None = None


Documents: TypeAlias = Sequence[int] | None  # rising; None: all of them
# Evaluates the model for which it was prepared, with its present weights. The value and
# standard error of some documents are those of their own plain mean. Only tasks with
# ``answers`` can be measured on some.
Measure: TypeAlias = Callable[[Documents], Measurement]
Measures: TypeAlias = Mapping[str, Measure]  # by task


@dataclass(frozen=True)
class MeasurementRequest:
    """A measurement to make, as a value that can be sent to another process."""

    merge: tuple[tuple[str, float], ...]  # coefficients by name
    task: str
    documents: tuple[int, ...] | None = None  # counted from 0; None: all of them
    held_out: bool = False  # of the documents that a search never sees

    @property
    def coefficients(self) -> dict[str, float]:
        """Return the coefficients of the merge."""
        return dict(self.merge)


@dataclass(frozen=True)
class Metric:
    """The properties of a task's metric, known before anything is measured."""

    higher_is_better: bool
    lower: float | None  # smallest possible value, None where unbounded
    upper: float | None  # largest possible value, None where unbounded
    unit: str = ""

    def __post_init__(self) -> None:
        if not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"the range must rise, got {self.bounds}")

    @property
    def sign(self) -> int:
        """Return 1 or -1, the factor that makes larger values better."""
        return 1 if self.higher_is_better else -1

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the smallest and largest possible value, infinite where unbounded."""
        lower = -math.inf if self.lower is None else self.lower
        return lower, math.inf if self.upper is None else self.upper

    @property
    def better(self) -> str:
        """Return which values are better: higher or lower."""
        return "higher" if self.higher_is_better else "lower"

    def utility(self, value: float) -> float:
        """Turn a value so that larger is better."""
        return self.sign * value
