"""``front.json``: the trade-offs that a search found, as a value.

Notation: ``k`` merges, ``m`` tasks. What is read as an array is larger is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from mergekit_map.config.specs import SelectSpec
from mergekit_map.measurement import Metric
from mergekit_map.results.confirmation import Confirmation
from mergekit_map.results.differences import Differences
from mergekit_map.results.measured_task import Task
from mergekit_map.results.merge_order import Order, members
from mergekit_map.results.quality import Border, Ending, Unfinished
from mergekit_map.results.records import (
    Coefficients,
    Finite,
    Frozen,
    Line,
    Record,
    Stderr,
)
from mergekit_map.search.arrays import FloatArray, finite

Kind: TypeAlias = Literal["predicted", "measured"]
KINDS: tuple[Kind, Kind] = ("predicted", "measured")


class Reading(Frozen):
    """A value in the task's own units, and its standard error."""

    value: Finite | None
    """Null where it is unknown."""
    stderr: Stderr | None
    """Null where it is unknown."""
    documents: int | None = Field(default=None, ge=0)
    """How many it was measured on, where the value on all is estimated by them; left
    out for all."""

    @model_serializer(mode="wrap")
    def _without_what_it_lacks(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        keys = {"documents"} if self.documents is None else set()
        return {key: v for key, v in handler(self).items() if key not in keys}

    @classmethod
    def of(
        cls, value: float | None, stderr: float | None, documents: int | None = None
    ) -> Reading:
        """Take NaN and infinity for unknown."""
        return cls(value=finite(value), stderr=finite(stderr), documents=documents)

    def __str__(self) -> str:
        """Write ``0.67 ± 0.01``, or ``0.67 ± 0.01 (24 documents)``."""
        if self.value is None:
            return "-"
        stderr = f" ± {self.stderr:.1g}" if self.stderr else ""
        on = f" ({self.documents} documents)" if self.documents is not None else ""
        return f"{self.value:.4g}{stderr}{on}"


UNKNOWN = Reading(value=None, stderr=None)
Readings: TypeAlias = dict[Line, Reading]  # by task


class Merge(Frozen):
    """A merge, and what is known of it."""

    label: Line | None = None
    """Of an anchor: base, soup, or the name of the only model in it."""
    coefficients: Coefficients
    """Those of the front; null for an anchor that has no place among them."""
    predicted: Readings | None = None
    """By task; missing where nothing was asked of the surrogates."""
    measured: Readings
    """By task; of points and anchors on all documents."""
    foretold: Readings | None = None
    """What was predicted of it before it was measured."""
    recipe: Line | None = None
    """Of a point: the file of its mergekit configuration."""

    @field_validator("coefficients", mode="before")
    @classmethod
    def _without_null(cls, value: Any) -> Any:
        nowhere = isinstance(value, dict) and all(v is None for v in value.values())
        return {} if nowhere else value

    @model_serializer(mode="wrap")
    def _without_what_it_lacks(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        return {key: v for key, v in handler(self).items() if v is not None}

    def readings(self, kind: Kind) -> Readings:
        """Give what was predicted or measured, by task."""
        return self.measured if kind == "measured" else self.predicted or {}

    def is_measured(self, *tasks: str) -> bool:
        """Tell whether there is a measured value of every one of these tasks."""
        return all(self.measured[task].value is not None for task in tasks)

    @property
    def weights(self) -> str:
        """Write the coefficients: ``math=0.31, code=0.587``."""
        return ", ".join(f"{n}={v:.4g}" for n, v in self.coefficients.items())


class Front(Record):
    """A finished search: its front, its anchors, and the point that was chosen."""

    coefficients: dict[Line, tuple[float, float]]
    """What was searched, and between which bounds."""
    groups: dict[Line, Coefficients] = Field(default_factory=dict)
    """Of nested MAP: the merges whose weights the surrogates take."""
    order: Order | None = None
    """Of nested MAP: what was merged with what."""
    tasks: dict[Line, Task] = Field(min_length=1)
    """What was measured."""
    surrogate: Line = "quadratic"
    """The kind of the fits."""
    selected: int = Field(ge=0)
    """Index of the chosen point."""
    points: tuple[Merge, ...] = Field(min_length=1)
    """The front, worst on the first task first; what was chosen between is last."""
    recommended: tuple[int, ...] = ()
    """The points that were measured, and that no measured merge dominates."""
    ending: Ending | None = None
    """Of a search that chose its merges as it went."""
    anchors: tuple[Merge, ...]
    """The base model, every model by itself, and their uniform soup."""
    merges: tuple[Merge, ...] = ()
    """What was measured besides."""
    differences: dict[Line, Differences] = Field(default_factory=dict)
    """How well differences are known, by task; of merges measured on the same items."""
    holdout: Confirmation | None = None
    """What documents say that the search never saw; left out where there are none."""
    border: tuple[Border, ...] = ()
    """Ends of the box at which points lie, and beyond which better ones may."""
    unfinished: Unfinished | None = None
    """How far the search was, if it was not finished; left out if it was."""
    select: SelectSpec = SelectSpec()
    """What the point was chosen by."""
    reason: Line
    """How the point was chosen, in a sentence."""
    verdicts: tuple[Line, ...] = ()
    """What the numbers mean, in sentences."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.selected >= len(self.points):
            raise ValueError(f"selected: there are only {len(self.points)} points")
        every = (self.points, self.anchors, self.merges)
        for place, merges in zip(("points", "anchors", "merges"), every, strict=True):
            for index, merge in enumerate(merges):
                self._check(f"{place}.{index}", merge)
        for task, known in self.differences.items():
            if task not in self.tasks or known.merges[-1] >= len(self.known):
                raise ValueError(f"differences.{task}: no such task, or merge")
        if self.holdout is not None and not self.holdout.tasks <= set(self.tasks):
            raise ValueError(f"holdout: the tasks are {sorted(self.tasks)}")
        if not set(self.recommended) <= set(range(len(self.points))):
            raise ValueError(f"recommended: there are {len(self.points)} points")
        for index, point in enumerate(self.points):
            lacking = [t for t, r in (point.predicted or {}).items() if r.value is None]
            if lacking and self.unfinished is None:
                place = f"points.{index}.predicted.{lacking[0]}"
                raise ValueError(f"{place}: a value is wanted, got null")
            if point.recipe not in {None, recipe_name(index)}:
                raise ValueError(f"points.{index}: its recipe is {recipe_name(index)}")
        return self

    @model_validator(mode="after")
    def _named(self) -> Self:
        """Hold each name to what it is the name of."""
        axes = {*self.groups} or {*self.coefficients}
        for index, end in enumerate(self.border):
            if end.coefficient not in axes:
                place = f"border.{index}.coefficient"
                raise ValueError(f"{place}: the names are {sorted(axes)}")
        for label, group in self.groups.items():
            if group.keys() != self.coefficients.keys():
                wanted = sorted(self.coefficients)
                raise ValueError(f"groups.{label}: the names are {wanted}")
        if self.ending is not None and self.ending.task not in self.tasks:
            raise ValueError(f"ending.task: the tasks are {sorted(self.tasks)}")
        names = () if self.order is None else members(self.order)
        if isinstance(self.order, str) or len({*names}) < len(names):
            raise ValueError("order: pairs are wanted, and each name once")
        return self

    def _check(self, place: str, merge: Merge) -> None:
        known = set(self.coefficients)
        nowhere = place.startswith("anchors") and not merge.coefficients
        if set(merge.coefficients) != known and not nowhere:
            raise ValueError(f"{place}.coefficients: the names are {sorted(known)}")
        for kind in KINDS[1:] if place.startswith("merges") else KINDS:
            if set(merge.readings(kind)) != set(self.tasks):
                raise ValueError(f"{place}.{kind}: the tasks are {sorted(self.tasks)}")
        if merge.foretold is not None and set(merge.foretold) != set(self.tasks):
            raise ValueError(f"{place}.foretold: the tasks are {sorted(self.tasks)}")
        if place.startswith("anchors") and merge.label is None:
            raise ValueError(f"{place}: an anchor has a label")

    @model_serializer(mode="wrap")
    def _with_null(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        nowhere = dict.fromkeys(self.coefficients)
        for anchor in content["anchors"]:
            anchor["coefficients"] = anchor["coefficients"] or nowhere
        content["select"] = self.select.model_dump(mode="json", exclude_unset=True)
        later = {"differences", "holdout", "border", "unfinished"}
        return {k: v for k, v in content.items() if v or k not in later}

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield "points", len(self.points)
        yield "tasks", [*self.tasks]
        yield "chosen", self.selected

    @property
    def chosen(self) -> Merge:
        """Give the chosen point."""
        return self.points[self.selected]

    @property
    def known(self) -> tuple[Merge, ...]:
        """List all merges, in the order that ``differences`` counts them in."""
        return (*self.points, *self.anchors, *self.merges)

    @property
    def metrics(self) -> dict[str, Metric]:
        """Give what is known of the tasks."""
        return {name: task.metric for name, task in self.tasks.items()}

    def utilities(self, merges: Iterable[Merge], kind: Kind) -> FloatArray:
        """Read values, larger is better; (k, m), NaN where unknown."""
        rows = [
            [
                math.nan if value is None else metric.utility(value)
                for task, metric in self.metrics.items()
                for value in [merge.readings(kind)[task].value]
            ]
            for merge in merges
        ]
        return self._array(rows)

    def stderrs(self, merges: Iterable[Merge], kind: Kind) -> FloatArray:
        """Read the standard errors of ``utilities``; (k, m), NaN where unknown."""
        rows = [[m.readings(kind)[task].stderr for task in self.tasks] for m in merges]
        return self._array(rows)  # None becomes NaN

    def _array(self, rows: Sequence[Sequence[float | None]]) -> FloatArray:
        return np.array(rows, np.float64).reshape(len(rows), len(self.tasks))

    def with_point(self, index: int, point: Merge) -> Front:
        """Put what is known now of a point in its place."""
        points = (*self.points[:index], point, *self.points[index + 1 :])
        return self.model_copy(update={"points": points})


def recipe_name(index: int) -> str:
    """Name the file of a point's recipe, in the run folder."""
    return f"recipes/{index:03d}.yml"
