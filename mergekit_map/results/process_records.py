"""Gaussian processes in ``surrogates.json``: of the mean, and of its errors.

Notation: ``n`` merges, ``d`` coefficients, ``r`` rows of values and slopes.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from mergekit_map.results.records import Frozen
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.kernel import LENGTHS, Rows
from mergekit_map.search.process import Process
from mergekit_map.search.residual import Residual, residual_of_version_1

# Of files from elsewhere: with more, a prediction takes minutes.
_MOST_DRAWS, _MOST_POINTS = 64, 2048

Row: TypeAlias = tuple[float, ...]
_Logarithm: TypeAlias = Annotated[float, Field(ge=-100, le=100)]
_Theta: TypeAlias = tuple[Annotated[float, Field(ge=-20, le=20)], ...]
# Wide enough for whatever is fitted, and such that no covariance overflows.
_Point: TypeAlias = tuple[Annotated[float, Field(ge=-1e3, le=1e3)], ...]
_Size: TypeAlias = Annotated[float, Field(ge=-1e100, le=1e100)]
_Variance: TypeAlias = Annotated[float, Field(ge=0, le=1e100)]
_Length: TypeAlias = Annotated[float, Field(ge=1e-9, le=1e9)]


class ResidualRecord(Frozen):
    """The mean of the process: a bump around every merge."""

    points: tuple[_Point, ...] = Field(min_length=1)
    """On coefficients scaled to [-1/2, 1/2] by the bounds."""
    weights: tuple[_Size, ...]
    """Height of each bump, in units of the quadratic."""
    lengths: tuple[_Length, ...]
    """How far a bump reaches along each coefficient, in widths of the box."""

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if len(self.points) != len(self.weights):
            counts = f"{len(self.weights)} weights at {len(self.points)} points"
            raise ValueError(counts)
        if {len(self.lengths)} != {len(row) for row in self.points}:
            raise ValueError(f"{len(self.lengths)} lengths, of other coefficients")
        return self

    @classmethod
    def of(cls, residual: Residual) -> ResidualRecord:
        """Write down a residual; ``value`` of it predicts the same, bit for bit."""
        return cls(
            points=rows_of(residual.points),
            weights=tuple(residual.weights.tolist()),
            lengths=tuple(residual.lengths.tolist()),
        )

    def value(self) -> Residual:
        """Rebuild the residual."""
        points, weights = np.array(self.points), np.array(self.weights)
        return Residual(points, weights, np.array(self.lengths))


class IsotropicRecord(Frozen):
    """The process as runs of mergekit-map 0.1.0 have it."""

    points: tuple[_Point, ...] = Field(min_length=1)
    """On coefficients scaled to [-1/2, 1/2] by the bounds."""
    left: tuple[_Size, ...]
    """What the quadratic left there, in its units."""
    scale: float = Field(gt=0, le=1e100)
    """Standard deviation of that."""
    theta: tuple[_Logarithm, ...] = Field(min_length=3)
    """Logarithms of height, wave length and noise."""

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if len(self.points) != len(self.left):
            raise ValueError(f"{len(self.left)} left at {len(self.points)} points")
        return self

    def value(self) -> Residual:
        """Rebuild its mean."""
        points, left, theta = map(np.array, (self.points, self.left, self.theta))
        return residual_of_version_1(points, left, self.scale, theta)


class ProcessRecord(Frozen):
    """What tells the standard errors of predictions with a process."""

    points: tuple[_Point, ...] = Field(min_length=1, max_length=_MOST_POINTS)
    """On coefficients scaled to [-1/2, 1/2] by the bounds."""
    sloped: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """The points whose slopes were measured."""
    seen: tuple[_Size, ...]
    """Values, then slopes, behind the link, in units of ``scale``."""
    noise: tuple[_Variance, ...]
    """Variances of these, in units of those in theta."""
    sampling: tuple[_Variance, ...] = ()
    """Variances of a choice of documents; left out where all were measured."""
    offset: _Size
    """What the values are counted from."""
    scale: float = Field(gt=0, le=1e100)
    """Standard deviation of the values."""
    theta: _Theta
    """The most probable logarithms of how large each part is."""
    draws: tuple[_Theta, ...] = Field(min_length=1, max_length=_MOST_DRAWS)
    """Probable ones."""
    weights: tuple[_Variance, ...]
    """How probable each draw is."""
    widening: float = Field(gt=0, le=1e9)
    """Of all standard deviations."""
    rough: tuple[_Variance, ...]
    """For each draw, how far the metric is off what is smooth."""

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        n, d = len(self.points), len(self.points[0])
        rows, size = n + d * len(self.sloped), LENGTHS + d
        widths = {len(row) for row in (self.theta, *self.draws)}
        sizes = {len(self.seen), len(self.noise), len(self.sampling) or rows}
        if sizes != {rows} or widths != {size}:
            raise ValueError(f"{n} points need {rows} values, and {size} in theta")
        if max(self.sloped, default=0) >= n or (
            {len(self.weights), len(self.rough)} != {len(self.draws)}
        ):
            raise ValueError("slopes and weights are of points and draws")
        return self

    @model_serializer(mode="wrap")
    def _without_what_it_lacks(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        keys = set() if self.sampling else {"sampling"}
        return {key: v for key, v in handler(self).items() if key not in keys}

    @classmethod
    def of(cls, process: Process) -> ProcessRecord:
        """Write down a process; ``value`` of it predicts the same, bit for bit."""
        sampling = process.rows.sampling
        return cls(
            points=rows_of(process.rows.U),
            sloped=tuple(process.rows.sloped.tolist()),
            seen=tuple(process.z.tolist()),
            noise=tuple(process.rows.noise.tolist()),
            sampling=tuple(sampling.tolist()) if sampling.any() else (),
            offset=process.offset,
            scale=process.scale,
            theta=tuple(process.theta.tolist()),
            draws=rows_of(process.draws),
            weights=tuple(process.weights.tolist()),
            widening=process.widening,
            rough=tuple(process.rough.tolist()),
        )

    def value(self) -> Process:
        """Rebuild the process."""
        sloped = np.array(self.sloped, dtype=np.int_)
        sampling = np.array(self.sampling or [0.0])
        rows = Rows(np.array(self.points), sloped, np.array(self.noise), sampling)
        return Process(
            rows,
            np.array(self.seen),
            self.offset,
            self.scale,
            np.array(self.theta),
            np.array(self.draws),
            np.array(self.weights),
            self.widening,
            np.array(self.rough),
        )


def rows_of(array: FloatArray) -> tuple[Row, ...]:
    """Write down a matrix."""
    return tuple(map(tuple, array.tolist()))
