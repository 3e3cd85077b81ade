"""``surrogates.json``: what predicted a front.

Notation: ``d`` coefficients of the surrogates, ``t`` terms of a quadratic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from mergekit_map.errors import ArtifactError
from mergekit_map.results.front import Front, Reading, Readings
from mergekit_map.results.process_records import (
    IsotropicRecord,
    ProcessRecord,
    ResidualRecord,
    Row,
    rows_of,
)
from mergekit_map.results.quality import Fit
from mergekit_map.results.records import (
    Coefficients,
    Frozen,
    Line,
    Number,
    Record,
    read_record,
)
from mergekit_map.search.arrays import FloatArray, finite, inside
from mergekit_map.search.links import Link
from mergekit_map.search.quadratic import Quadratic, n_quadratic_terms
from mergekit_map.search.surrogate import FitQuality, Surrogate

# A merge whose weights are this near to those of a merge of groups is that merge.
_ROUNDING = 1e-9


class LinkRecord(Frozen):
    """The range of a metric; null where there is no bound."""

    lower: Number | None
    upper: Number | None

    @model_validator(mode="after")
    def _holds_something(self) -> Self:
        self.value()  # whose words they are that refuse an empty range
        return self

    def value(self) -> Link:
        """Rebuild the link."""
        lower = -math.inf if self.lower is None else self.lower
        return Link(lower, math.inf if self.upper is None else self.upper)


class SurrogateRecord(Frozen):
    """The surrogate of a task: ``link(intercept + linear x + x hessian x / 2)``."""

    intercept: float
    linear: Row
    hessian: tuple[Row, ...]
    link: LinkRecord
    bounds: tuple[tuple[float, float], ...] = Field(min_length=1)
    """Of the coefficients."""
    covariance: tuple[tuple[float | None, ...], ...]
    """Of the terms, on coefficients scaled to [-1/2, 1/2] by the bounds."""
    quality: Fit
    residual: ResidualRecord | IsotropicRecord | None
    """Added behind the link."""
    misfit: Annotated[float, Field(ge=0)] | None = 0.0
    """Of the quadratic: a standard deviation behind the link; null if unknown."""
    process: ProcessRecord | None = None
    """What tells the standard errors, where there is one."""

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        d = len(self.bounds)
        if not all(lower < upper for lower, upper in self.bounds):
            raise ValueError("bounds: the ends do not rise")
        t = n_quadratic_terms(d)
        wanted = {"linear": (d,), "hessian": (d, d), "covariance": (t, t)}
        for name, shape in wanted.items():
            rows = getattr(self, name)
            widths = {len(row) for row in rows} if len(shape) == 2 else {shape[-1]}
            if len(rows) != shape[0] or widths != {shape[-1]}:
                raise ValueError(f"{name}: numbers are {shape} for {d} bounds")
        for name, process in (("residual", self.residual), ("process", self.process)):
            if process and {len(row) for row in process.points} != {d}:
                text = f"rows are of {d} numbers for {d} bounds"
                raise ValueError(f"{name}.points: {text}")
        return self

    @classmethod
    def of(cls, surrogate: Surrogate) -> SurrogateRecord:
        """Write down a surrogate; ``value`` of it predicts the same, bit for bit."""
        link, left, process = surrogate.link, surrogate.residual, surrogate.process
        return cls(
            intercept=surrogate.quadratic.intercept,
            linear=tuple(surrogate.quadratic.linear.tolist()),
            hessian=rows_of(surrogate.quadratic.hessian),
            link=LinkRecord(lower=finite(link.lower), upper=finite(link.upper)),
            bounds=tuple((lower, upper) for lower, upper in surrogate.bounds.tolist()),
            covariance=tuple(
                tuple(map(finite, row)) for row in surrogate.covariance.tolist()
            ),
            quality=Fit.of(asdict(surrogate.quality)),
            residual=ResidualRecord.of(left) if left is not None else None,
            misfit=finite(surrogate.misfit),
            process=ProcessRecord.of(process) if process is not None else None,
        )

    def value(self) -> Surrogate:
        """Rebuild the surrogate."""
        known: dict[str, Any] = {
            field.name: math.nan if value is None else value
            for field in fields(FitQuality)
            for value in [getattr(self.quality, field.name)]
        }
        return Surrogate(
            quadratic=Quadratic(
                self.intercept, np.array(self.linear), np.array(self.hessian)
            ),
            link=self.link.value(),
            bounds=np.array(self.bounds),
            covariance=np.array(self.covariance, dtype=np.float64),  # None is NaN
            quality=FitQuality(**known),
            residual=self.residual.value() if self.residual else None,
            misfit=math.nan if self.misfit is None else self.misfit,
            process=self.process.value() if self.process else None,
        )


class Surrogates(Record):
    """What predicted a front."""

    coefficients: tuple[Line, ...]
    """What the surrogates are functions of: the front's coefficients, or its groups."""
    groups: dict[Line, Coefficients] = Field(default_factory=dict)
    """Of nested MAP: the merges whose weights these are."""
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
        """Say a place on the axes (d,) by the front's coefficients."""
        axes = dict(zip(self.coefficients, place.tolist(), strict=True))
        if not self.groups:
            return axes
        names = next(iter(self.groups.values()))
        return {
            name: sum(axes[label] * group[name] for label, group in self.groups.items())
            for name in names
        }


def read_surrogates(path: Path, front: Front) -> Surrogates:
    """Read what predicted a front.

    Raises:
        ArtifactError: the file is damaged, or of another front.
    """
    found = read_record(path, Surrogates, "surrogates")
    if found.tasks.keys() != front.tasks.keys():
        raise ArtifactError(f"{path} has other tasks than its front; search again")
    axes = tuple(front.groups or front.coefficients)
    if (found.coefficients, found.groups) != (axes, front.groups):
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
    """Say merges on the axes of the surrogates.

    Args:
        merges: By coefficient.
        names: Of the coefficients, in the order of the axes where there are no groups.
        groups: Of nested MAP: the merges whose weights the axes are.
        bounds: (d, 2) where surrogates were fitted.

    Returns:
        (k, d), with a row of NaN for each merge where no surrogate was fitted.
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

    Outside the sampled box a quadratic is a guess, and none is shown.
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
