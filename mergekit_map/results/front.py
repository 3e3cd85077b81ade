"""``front.json``: the trade-offs that a search found.

Notation: ``k`` merges, ``m`` tasks. In arrays, larger is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from mergekit_map.config.engines import CALLED
from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.holdout import Confirmation
from mergekit_map.results.nested_order import Order, members
from mergekit_map.results.paired import Differences
from mergekit_map.results.records import (
    Coefficients,
    Finite,
    Frozen,
    Line,
    Number,
    Record,
    Stderr,
)
from mergekit_map.surrogates.arrays import FloatArray, finite
from mergekit_map.types import Metric

# Keys of a fit that runs of every version have.
_ALWAYS = {"n", "n_terms", "r2", "loo_r2", "condition", "residual_stderr"}


class Fit(Frozen):
    """How far to trust a surrogate; null where there are too few merges to tell."""

    n: int
    """Fitted merges."""
    n_terms: int | None = None
    """Parameters of the quadratic."""
    r2: float | None
    """On the fitted merges."""
    loo_r2: float | None
    """Each merge predicted by the fit without it."""
    condition: float | None = None
    """Of the design: largest over smallest singular value."""
    residual_stderr: float | None = None
    """Of a merge of average weight."""
    kind: Line = "quadratic"
    """What was fitted: `quadratic`, `regularized` or `residual_gp`."""
    error: float | None = None
    """Standard error of predictions left out one by one, as a share of the range."""
    front_error: float | None = None
    """That of predictions on the front, as a share of the task's range there."""
    expected_r2: float | None = None
    """What share of the variance over the box predictions explain, as they expect."""
    other_error: float | None = None
    """That of what was not taken, where the search had the choice."""

    @model_serializer(mode="wrap")
    def _as_it_was_read(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        later = set(type(self).model_fields) - self.model_fields_set - _ALWAYS
        return {key: v for key, v in handler(self).items() if key not in later}

    @classmethod
    def of(cls, quality: Mapping[str, float | str]) -> Fit:
        """Build from numbers; NaN stands for unknown."""
        known = {k: v if isinstance(v, str) else finite(v) for k, v in quality.items()}
        return cls.model_validate(known)


def n_safe(d: int) -> int:
    """Return the fewest measured merges of d coefficients that a front needs."""
    return 2 * (d + 1)


class Border(Frozen):
    """An end of the searched box at which points of the front lie."""

    coefficient: Line
    """Whose end it is."""
    end: float
    """Its largest or smallest value."""
    points: int = Field(ge=1)
    """How many lie there."""
    beyond: float
    """How far the surrogates were asked to look past it."""
    gain: float = Field(ge=0)
    """What that would add to the hypervolume of the front, as they predict: a share."""


class Ending(Frozen):
    """Why a search stopped measuring, and how well it knew its front then."""

    evaluations: int = Field(ge=0)
    """Merges it chose, without those of the front."""
    allowed: int = Field(ge=0)
    """As many as it might have."""
    trusted: bool
    """Whether it stopped before all of these were used."""
    quiet: int = Field(0, ge=0)
    """How many of the last rounds came out as predicted."""
    error: float = Field(ge=0)
    """The largest standard error on the front, as a share of a task's range there."""
    task: Line
    """That task."""
    hope: float = Field(ge=0)
    """What a front one standard error better would add to its hypervolume: a share."""
    spent: bool = False
    """Whether a budget of hours ended it; left out where none did."""

    @model_serializer(mode="wrap")
    def _without_what_did_not(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        return {k: v for k, v in handler(self).items() if v or k != "spent"}


class Unfinished(Frozen):
    """How far a search was that is not finished, when its front was found."""

    measured: int = Field(ge=0)
    """Merges measured on every task."""
    most: int = Field(ge=0)
    """Merges that the search measures at most."""
    fitted: bool
    """Whether surrogates were fitted; without them points are measured merges, and what
    is said to be predicted of them is what was measured."""
    of: Line
    """Digest of what it was found from."""


class Task(Frozen):
    """A task, and how well its surrogate fits."""

    direction: Literal["maximize", "minimize"]
    """Which values are better."""
    range: tuple[Number | None, Number | None]
    """Smallest and largest possible value, null where there is none."""
    unit: Line
    """Of its values."""
    fit: Fit
    """Of its surrogate."""
    engine: Line | None = None
    """What generated its answers, `vllm`; left out where the log
    does not name it."""

    @model_serializer(mode="wrap")
    def _without_what_it_lacks(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        keys = {"engine"} if self.engine is None else set()
        return {key: v for key, v in handler(self).items() if key not in keys}

    @property
    def facts(self) -> tuple[str, ...]:
        """Describe a task: its unit, which values are better, and its engine."""
        by = "" if self.engine is None else f"by {CALLED.get(self.engine, self.engine)}"
        found = (self.unit, f"{self.metric.better} is better", by)
        return tuple(filter(None, found))

    @property
    def metric(self) -> Metric:
        """Return what is known of the task as a metric."""
        lower, upper = self.range
        return Metric(self.direction == "maximize", lower, upper, self.unit)


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
        """Build from numbers; NaN and infinity stand for unknown."""
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
        """Return the predicted or measured values, by task."""
        return self.measured if kind == "measured" else self.predicted or {}

    def is_measured(self, *tasks: str) -> bool:
        """Whether every one of these tasks has a measured value."""
        return all(self.measured[task].value is not None for task in tasks)

    @property
    def weights(self) -> str:
        """Write the weights: ``math=0.31, code=0.587``."""
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
        """Check that each name matches the object it names."""
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
        """Return the chosen point."""
        return self.points[self.selected]

    @property
    def known(self) -> tuple[Merge, ...]:
        """List all merges, in the order of the rows of ``differences``."""
        return (*self.points, *self.anchors, *self.merges)

    @property
    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of the tasks."""
        return {name: task.metric for name, task in self.tasks.items()}

    def utilities(self, merges: Iterable[Merge], kind: Kind) -> FloatArray:
        """Return the values, larger is better; (k, m), NaN where unknown."""
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
        """Return the standard errors of ``utilities``; (k, m), NaN where unknown."""
        rows = [[m.readings(kind)[task].stderr for task in self.tasks] for m in merges]
        return self._array(rows)  # None becomes NaN

    def _array(self, rows: Sequence[Sequence[float | None]]) -> FloatArray:
        return np.array(rows, np.float64).reshape(len(rows), len(self.tasks))

    def with_point(self, index: int, point: Merge) -> Front:
        """Replace a point by its updated version."""
        points = (*self.points[:index], point, *self.points[index + 1 :])
        return self.model_copy(update={"points": points})


def recipe_name(index: int) -> str:
    """Return the file name of a point's recipe, in the run folder."""
    return f"recipes/{index:03d}.yml"
