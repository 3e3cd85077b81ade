"""``surrogates.json``: the surrogates of a front.

Notation: ``d`` coefficients of the surrogates, ``n`` merges, ``k`` draws.
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
    LARGEST,
    Coefficients,
    Frozen,
    Line,
    Number,
    Record,
    read_record,
)
from mergekit_map.surrogates.arrays import FloatArray, finite, inside, weight
from mergekit_map.surrogates.gaussian_process import Process
from mergekit_map.surrogates.kernel import LENGTHS, Rows
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.quadratic import Quadratic
from mergekit_map.surrogates.surrogate import FitQuality, Surrogate

# Of files from elsewhere: with more, a prediction takes minutes.
_MOST_DRAWS, _MOST_POINTS = 64, 2048
# A merge whose weights are this near to those of a merge of groups is that merge.
_ROUNDING = 1e-9

_Theta: TypeAlias = list[Annotated[float, Field(ge=-20, le=20)]]
# Wide enough for whatever is fitted, and such that no square of a sum overflows.
_Point: TypeAlias = list[Annotated[float, Field(ge=-1e3, le=1e3)]]
_Size: TypeAlias = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
_Variance: TypeAlias = Annotated[float, Field(ge=0, le=1e100)]


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


def _lists(value: Quadratic | Rows | Process) -> dict[str, Any]:
    """Return the fields of a value by name, with arrays as lists."""
    known = {field.name: getattr(value, field.name) for field in fields(value)}
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in known.items()}


class ProcessRecord(_Shaped):
    """The process behind the link: what is believed of the metric."""

    points: list[_Point] = Field(min_length=1, max_length=_MOST_POINTS)
    """Coefficients of the fitted merges, scaled to [-1/2, 1/2] by the bounds."""
    seen: list[_Size]
    """Values behind the link, in units of ``scale``."""
    noise: list[_Variance]
    """Variances of these, in units of that in theta."""
    sampling: list[_Variance] = Field(default_factory=list)
    """Variances of sampling documents; left out where all were measured."""
    offset: _Size
    """Offset of the values."""
    scale: float = Field(gt=0, le=LARGEST)
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
    left_out = frozenset({"sampling"})

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        n, d, k = len(self.points), len(self.points[0]), len(self.draws)
        some = {"sampling": (n,)} if self.sampling else {}
        self.require(points=(n, d), seen=(n,), noise=(n,), **some)
        size = LENGTHS + d
        return self.require(theta=(size,), draws=(k, size), weights=(k,), rough=(k,))

    @classmethod
    def of(cls, process: Process) -> ProcessRecord:
        """Build from a process; ``value`` predicts the same, bit for bit."""
        rows = _lists(process.rows)
        sampled = process.rows.sampling.any()
        rows |= {"points": rows["U"], "sampling": rows["sampling"] if sampled else []}
        return cls(**rows, seen=process.z.tolist(), **_lists(process))

    def value(self) -> Process:
        """Rebuild the process."""
        known = self.arrays()
        U, noise, sampling, z = map(known.pop, ("points", "noise", "sampling", "seen"))
        rows = Rows(U, noise, sampling if self.sampling else np.zeros(1))
        return Process(rows, z, **known)


class LinkRecord(Frozen):
    """The range of a metric; null where there is no bound."""

    lower: Number | None
    upper: Number | None

    def value(self) -> Link:
        """Rebuild the link."""
        lower = -math.inf if self.lower is None else self.lower
        return Link(lower, math.inf if self.upper is None else self.upper)


class QuadraticRecord(_Shaped):
    """A quadratic: ``intercept + linear x + x hessian x / 2``."""

    intercept: _Size
    linear: list[_Size]
    hessian: list[list[_Size]]

    def value(self) -> Quadratic:
        """Rebuild the quadratic."""
        return Quadratic(**self.arrays())


class SurrogateRecord(_Shaped):
    """The surrogate of a task."""

    link: LinkRecord
    bounds: list[list[float]] = Field(min_length=1)
    """Bounds of the coefficients."""
    quality: Fit
    process: ProcessRecord
    """The process that computes standard errors."""
    quadratic: QuadraticRecord | None
    """What predicts, behind the link; null for the mean of the process."""

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        d = len(self.bounds)
        self.link.value()  # whose words they are that refuse an empty range
        self.require(bounds=(d, 2))
        if not all(lower < upper for lower, upper in self.bounds):
            raise ValueError("bounds: the ends do not rise")
        self.process.require(points=(len(self.process.points), d))
        if self.quadratic is not None:
            self.quadratic.require(linear=(d,), hessian=(d, d))
        return self

    @classmethod
    def of(cls, surrogate: Surrogate) -> SurrogateRecord:
        """Build from a surrogate; ``value`` predicts the same, bit for bit."""
        link, quadratic = surrogate.link, surrogate.quadratic
        return cls(
            link=LinkRecord(lower=finite(link.lower), upper=finite(link.upper)),
            bounds=surrogate.bounds.tolist(),
            quality=Fit.of(asdict(surrogate.quality)),
            process=ProcessRecord.of(surrogate.process),
            quadratic=QuadraticRecord(**_lists(quadratic)) if quadratic else None,
        )

    def value(self) -> Surrogate:
        """Rebuild the surrogate."""
        quality: dict[str, Any] = {
            name: math.nan if value is None else value
            for name, value in self.quality
            if name in FitQuality.__dataclass_fields__
        }
        return Surrogate(
            link=self.link.value(),
            bounds=np.array(self.bounds),
            quality=FitQuality(**quality),
            process=self.process.value(),
            quadratic=self.quadratic.value() if self.quadratic else None,
        )


class _Versioned(Record):
    version: int


class Surrogates(Record):
    """The surrogates of a front."""

    version: Annotated[int, Field(ge=2, le=2)] = 2
    """Of the form of this file."""
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


def read_surrogates(path: Path, front: Front) -> Surrogates | None:
    """Read the surrogates of a front; None for a file of an earlier form.

    Raises:
        ArtifactError: the file is damaged, or of another front.
    """
    if read_record(path, _Versioned, "surrogates").version == 1:
        return None
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
