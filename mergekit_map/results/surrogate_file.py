"""``surrogates.json``: the surrogates of a front, quadratics and Gaussian processes.

Notation: ``d`` coefficients of the surrogates, ``t`` terms of a quadratic, ``n``
merges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from mergekit_map.errors import ArtifactError
from mergekit_map.results.front import Fit, Front, Reading, Readings
from mergekit_map.results.records import (
    Coefficients,
    Frozen,
    Line,
    Number,
    Record,
    read_record,
)
from mergekit_map.surrogates.arrays import FloatArray, finite, inside, weight
from mergekit_map.surrogates.gaussian_process import Process
from mergekit_map.surrogates.kernel import (
    LENGTHS,
    Residual,
    Rows,
    residual_of_version_1,
)
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.quadratic import Quadratic, n_quadratic_terms
from mergekit_map.surrogates.surrogate import FitQuality, Surrogate

# Of files from elsewhere: with more, a prediction takes minutes.
_MOST_DRAWS, _MOST_POINTS = 64, 2048
_SLOPES = 4  # the place of their noise in theta, in earlier runs

_Logarithm: TypeAlias = Annotated[float, Field(ge=-100, le=100)]
_Theta: TypeAlias = list[Annotated[float, Field(ge=-20, le=20)]]
# Wide enough for whatever is fitted, and such that no covariance overflows.
_Point: TypeAlias = list[Annotated[float, Field(ge=-1e3, le=1e3)]]
_Size: TypeAlias = Annotated[float, Field(ge=-1e100, le=1e100)]
_Variance: TypeAlias = Annotated[float, Field(ge=0, le=1e100)]
_Length: TypeAlias = Annotated[float, Field(ge=1e-9, le=1e9)]


class _Shaped(Frozen):
    """A record of numbers, and of arrays of them as lists."""

    def require(self, **shapes: tuple[int, ...]) -> Self:
        """Return the record; raise ValueError if an array has another shape."""
        for name, shape in shapes.items():
            found = np.array(getattr(self, name), object).shape
            if found != shape:
                raise ValueError(f"{name}: numbers are {shape}, got {found}")
        return self

    def arrays(self) -> dict[str, Any]:
        """Return the values by name, with lists as arrays."""
        return {k: np.array(v) if isinstance(v, list) else v for k, v in self}


def _lists(value: Quadratic | Residual | Rows | Process) -> dict[str, Any]:
    """Return the fields of a value by name, with arrays as lists."""
    known = {field.name: getattr(value, field.name) for field in fields(value)}
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in known.items()}


class ResidualRecord(_Shaped):
    """The mean of the process: a bump around every merge."""

    points: list[_Point] = Field(min_length=1)
    """Coefficients of the fitted merges, scaled to [-1/2, 1/2] by the bounds."""
    weights: list[_Size]
    """Height of each bump, in units of the quadratic."""
    lengths: list[_Length]
    """Length scale of each coefficient, in widths of the bounds."""

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        n, d = len(self.points), len(self.lengths)
        return self.require(points=(n, d), weights=(n,))

    def value(self) -> Residual:
        """Rebuild the residual."""
        return Residual(**self.arrays())


class IsotropicRecord(_Shaped):
    """The process in runs of mergekit-map 0.1.0."""

    points: list[_Point] = Field(min_length=1)
    """Coefficients of the fitted merges, scaled to [-1/2, 1/2] by the bounds."""
    left: list[_Size]
    """Residuals of the quadratic there, in its units."""
    scale: float = Field(gt=0, le=1e100)
    """Standard deviation of the residuals."""
    theta: list[_Logarithm] = Field(min_length=3)
    """Logarithms of height, wave length and noise."""

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        return self.require(left=(len(self.points),))

    def value(self) -> Residual:
        """Rebuild its mean."""
        points, left, theta = map(np.array, (self.points, self.left, self.theta))
        return residual_of_version_1(points, left, self.scale, theta)


class ProcessRecord(_Shaped):
    """The process that computes standard errors of predictions."""

    points: list[_Point] = Field(min_length=1, max_length=_MOST_POINTS)
    """Coefficients of the fitted merges, scaled to [-1/2, 1/2] by the bounds."""
    sloped: list[int] | None = None
    """Only in earlier runs, with a further number in theta: the points with slopes."""
    seen: list[_Size]
    """Values behind the link, in units of ``scale``."""
    noise: list[_Variance]
    """Variances of these, in units of that in theta."""
    sampling: list[_Variance] = Field(default_factory=list)
    """Variances of sampling documents; left out where all were measured."""
    offset: _Size
    """Offset of the values."""
    scale: float = Field(gt=0, le=1e100)
    """Standard deviation of the values."""
    theta: _Theta
    """Most probable logarithms of the scale of each part."""
    draws: list[_Theta] = Field(min_length=1, max_length=_MOST_DRAWS)
    """Draws of probable ones."""
    weights: list[_Variance]
    """Probability of each draw."""
    widening: float = Field(gt=0, le=1e9)
    """Factor on all standard deviations."""
    rough: list[_Variance]
    """For each draw, the deviation of the metric from its smooth part, at any point."""
    left_out = frozenset({"sampling", "sloped"})

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        n, d, k = len(self.points), len(self.points[0]), len(self.draws)
        rows = (n + d * len(self.sloped or ()),)
        size = LENGTHS + d + (self.sloped is not None)
        some = {"sampling": rows} if self.sampling else {}
        self.require(points=(n, d), seen=rows, noise=rows, **some)
        return self.require(theta=(size,), draws=(k, size), weights=(k,), rough=(k,))

    @classmethod
    def of(cls, process: Process) -> ProcessRecord:
        """Build from a process; ``value`` predicts the same, bit for bit."""
        rows = _lists(process.rows)
        sampled = process.rows.sampling.any()
        rows |= {"points": rows["U"], "sampling": rows["sampling"] if sampled else []}
        return cls(**rows, seen=process.z.tolist(), **_lists(process))

    def value(self) -> Process | None:
        """Rebuild the process; None of a process that was fitted to slopes, too."""
        if self.sloped:
            return None
        known = self.arrays()
        if known.pop("sloped") is not None:
            known |= {k: np.delete(known[k], _SLOPES, -1) for k in ("theta", "draws")}
        U, noise, sampling, z = map(known.pop, ("points", "noise", "sampling", "seen"))
        rows = Rows(U, noise, sampling if self.sampling else np.zeros(1))
        return Process(rows, z, **known)


# A merge whose weights are this near to those of a merge of groups is that merge.
_ROUNDING = 1e-9


class LinkRecord(Frozen):
    """The range of a metric; null where there is no bound."""

    lower: Number | None
    upper: Number | None

    def value(self) -> Link:
        """Rebuild the link."""
        lower = -math.inf if self.lower is None else self.lower
        return Link(lower, math.inf if self.upper is None else self.upper)


class SurrogateRecord(_Shaped):
    """The surrogate of a task: ``link(intercept + linear x + x hessian x / 2)``."""

    intercept: float
    linear: list[float]
    hessian: list[list[float]]
    link: LinkRecord
    bounds: list[list[float]] = Field(min_length=1)
    """Bounds of the coefficients."""
    covariance: list[list[float | None]]
    """Covariance of the terms, on coefficients scaled to [-1/2, 1/2] by the bounds."""
    quality: Fit
    residual: ResidualRecord | IsotropicRecord | None
    """Residual process, added behind the link."""
    misfit: Annotated[float, Field(ge=0)] | None = 0.0
    """Standard deviation of the quadratic behind the link; null if unknown."""
    process: ProcessRecord | None = None
    """Process that computes standard errors, where there is one."""

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        d = len(self.bounds)
        self.link.value()  # whose words they are that refuse an empty range
        self.require(bounds=(d, 2))
        if not all(lower < upper for lower, upper in self.bounds):
            raise ValueError("bounds: the ends do not rise")
        t = n_quadratic_terms(d)
        for part in (self.residual, self.process):
            if part is not None:
                part.require(points=(len(part.points), d))
        return self.require(linear=(d,), hessian=(d, d), covariance=(t, t))

    @classmethod
    def of(cls, surrogate: Surrogate) -> SurrogateRecord:
        """Build from a surrogate; ``value`` predicts the same, bit for bit."""
        link, left, process = surrogate.link, surrogate.residual, surrogate.process
        return cls(
            **_lists(surrogate.quadratic),
            link=LinkRecord(lower=finite(link.lower), upper=finite(link.upper)),
            bounds=surrogate.bounds.tolist(),
            covariance=[[*map(finite, row)] for row in surrogate.covariance.tolist()],
            quality=Fit.of(asdict(surrogate.quality)),
            residual=ResidualRecord(**_lists(left)) if left is not None else None,
            misfit=finite(surrogate.misfit),
            process=ProcessRecord.of(process) if process is not None else None,
        )

    def value(self) -> Surrogate:
        """Rebuild the surrogate."""
        quality: dict[str, Any] = {
            name: math.nan if value is None else value
            for name, value in self.quality
            if name in FitQuality.__dataclass_fields__
        }
        process = self.process.value() if self.process else None
        # Without its process nothing is known about the errors of a surrogate.
        unknown = self.process is not None and process is None
        misfit = math.nan if self.misfit is None or unknown else self.misfit
        return Surrogate(
            quadratic=Quadratic(
                self.intercept, np.array(self.linear), np.array(self.hessian)
            ),
            link=self.link.value(),
            bounds=np.array(self.bounds),
            covariance=np.array(self.covariance, dtype=np.float64),  # None is NaN
            quality=FitQuality(**quality),
            residual=self.residual.value() if self.residual else None,
            misfit=misfit,
            process=process,
        )


class Surrogates(Record):
    """The surrogates of a front."""

    coefficients: tuple[Line, ...]
    """Axes of the surrogates: the front's coefficients, or its groups."""
    groups: dict[Line, Coefficients] = Field(default_factory=dict)
    """With nested MAP: the merges whose weights the axes are."""
    tasks: dict[Line, SurrogateRecord] = Field(min_length=1)
    """A surrogate for each task."""

    @model_validator(mode="after")
    def _as_wide(self) -> Self:
        for task, surrogate in self.tasks.items():
            if len(surrogate.bounds) != len(self.coefficients):
                raise ValueError(
                    f"tasks.{task}: {len(surrogate.bounds)} bounds for "
                    f"{len(self.coefficients)} coefficients"
                )
        return self

    def values(self) -> Mapping[str, Surrogate]:
        """Rebuild the surrogates, by task."""
        return {task: surrogate.value() for task, surrogate in self.tasks.items()}

    def named(self, place: FloatArray) -> dict[str, float]:
        """Return the front's coefficients of a point (d,) on the axes."""
        axes = {n: weight(x) for n, x in zip(self.coefficients, place, strict=True)}
        if not self.groups:
            return axes
        names = next(iter(self.groups.values()))
        return {
            name: sum(axes[label] * group[name] for label, group in self.groups.items())
            for name in names
        }


def read_surrogates(path: Path, front: Front) -> Surrogates:
    """Read the surrogates of a front.

    Raises:
        ArtifactError: the file is damaged, or of another front.
    """
    found = read_record(path, Surrogates, "surrogates")
    if found.tasks.keys() != front.tasks.keys():
        raise ArtifactError(f"{path} has other tasks than its front; search again")
    if (found.coefficients, found.groups) != (front.axes, front.groups):
        raise ArtifactError(
            f"{path} has other coefficients than its front; search again"
        )
    return found


def locate(
    merges: Iterable[Mapping[str, float]],
    names: Iterable[str],
    groups: Mapping[str, Mapping[str, float]],
    bounds: FloatArray,
) -> FloatArray:
    """Return the coordinates of merges on the axes of the surrogates.

    The axes are the coefficients with these names, or the weights of the ``groups`` of
    nested MAP. Returns (k, d), with a row of NaN for each merge outside the ``bounds``
    (d, 2) that surrogates were fitted in.
    """
    order = list(names)
    X = np.array([[merge[name] for name in order] for merge in merges], np.float64)
    X = X.reshape(-1, len(order))
    if not groups:
        return np.where(inside(X, bounds)[:, None], X, np.nan)
    vectors = np.array([[group[name] for name in order] for group in groups.values()])
    rows: FloatArray = np.clip(X @ np.linalg.pinv(vectors), *bounds.T)
    on_plane = np.all(np.abs(rows @ vectors - X) <= _ROUNDING, axis=1)
    return np.where(on_plane[:, None], rows, np.nan)


def predict(surrogates: Mapping[str, Surrogate], X: FloatArray) -> list[Readings]:
    """Predict every task at located merges (k, d); unknown where a row is NaN.

    A quadratic is not extrapolated beyond the bounds.
    """
    known = np.all(np.isfinite(X), axis=1)[:, None]
    columns = []
    for surrogate in surrogates.values():
        # Somewhere in the box: each row is predicted as if all were known.
        rows = np.where(known, X, surrogate.bounds[:, 0])
        pairs = np.stack([surrogate.predict(rows), surrogate.stderr(rows)], axis=1)
        pairs = np.where(known, pairs, np.nan)
        columns.append([Reading.of(*pair) for pair in pairs.tolist()])
    return [
        dict(zip(surrogates, row, strict=True)) for row in zip(*columns, strict=True)
    ]
