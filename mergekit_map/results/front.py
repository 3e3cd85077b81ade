"""The trade-offs that a search found: ``front.json``.

Notation: ``k`` merges, ``m`` tasks. In arrays, larger is better.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from typing_extensions import TypeAliasType

from mergekit_map.config.schema import Bounds, SelectSpec
from mergekit_map.config.tasks import CALLED, MOST_TASKS, rising
from mergekit_map.results.paired import Differences
from mergekit_map.results.records import (
    AS_GIVEN,
    LARGEST,
    Coefficients,
    Finite,
    Frozen,
    Line,
    Number,
    Record,
    Stderr,
    left_out,
    one_line,
)
from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.types import NATS, NO_SINGLE_MODEL, Metric, SurrogateKind


class Fit(Frozen):
    """How well a surrogate fits; null where too few merges were measured."""

    n: int
    """Number of fitted merges."""
    r2: float | None
    """R² on the fitted merges."""
    loo_r2: float | None
    """Leave-one-out R²: each merge is predicted by the fit without it."""
    kind: Line = "quadratic"
    """The kind of surrogate: `quadratic`, `regularized` or `residual_gp`."""
    front_error: float | None = None
    """Standard error of predictions on the front, as a share of the range there, or of
    a 20th of that within the bounds if this is larger."""
    expected_r2: float | None = None
    """Expected share of the variance within the bounds that predictions explain."""


# With nested MAP: the name of a coefficient, or the two that are merged.
Order = TypeAliasType("Order", "Line | tuple[Order, Order]")


def axis_bounds(
    axes: Iterable[str], coefficients: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Return the bounds of coefficients, or of weights of groups of them.

    Those of a group are 0 and 1, so that products stay within bounds that contain 0.
    """
    return {axis: coefficients.get(axis, (0.0, 1.0)) for axis in axes}


class Border(Frozen):
    """A bound of the search at which points of the front lie."""

    coefficient: Line
    """The coefficient with this bound."""
    end: float
    """The bound: its largest or smallest value."""
    beyond: float
    """A value beyond the bound, for which the surrogates were evaluated."""
    gain: float = Field(ge=0)
    """Predicted share that it would add to the hypervolume of the front."""


class Ending(Frozen):
    """Why a search stopped measuring, and what more would have brought."""

    evaluations: int = Field(ge=0)
    """Number of merges that it chose, those of the front apart."""
    allowed: int = Field(ge=0)
    """The largest number of such merges."""
    trusted: bool
    """Whether it stopped before these or the hours ran out."""
    hope: float = Field(ge=0)
    """Share that a front one standard error better would add to the hypervolume."""


class Unfinished(Frozen):
    """How far an unfinished search was when this front was found."""

    measured: int = Field(ge=0)
    """Number of merges measured on every task."""
    most: int = Field(ge=0)
    """Largest number of merges that the search measures."""
    of: Line
    """Digests of the plan and of the measurements that it was found from."""

    @property
    def in_words(self) -> str:
        """Describe the progress."""
        merges = f"{self.measured} of at most {self.most} merges"
        return f"The search is not finished: {merges} are measured."


class Task(Frozen):
    """A task, and how well its surrogate fits."""

    direction: Literal["maximize", "minimize"]
    """Which values are better."""
    range: Annotated[tuple[Number | None, Number | None], AfterValidator(rising)]
    """Smallest and largest possible value, null where there is none."""
    unit: Line
    """Unit of its values."""
    fit: Fit
    """Quality of its surrogate."""
    engine: Line | None = left_out()
    """Engine that generated its answers: `vllm`; left out where the log has none."""

    @property
    def facts(self) -> tuple[str, ...]:
        """Describe a task: its unit, which values are better, and its engine."""
        unit = f"loss in {self.unit}" if self.unit == NATS else self.unit
        facts = [unit, f"{self.metric.better} is better"]
        if self.engine is not None:
            facts.append(f"by {CALLED.get(self.engine, self.engine)}")
        return tuple(filter(None, facts))

    @property
    def metric(self) -> Metric:
        """Return what is known of the task as a metric."""
        return Metric(self.direction == "maximize", *self.range, self.unit)


Kind: TypeAlias = Literal["predicted", "measured"]
KINDS: tuple[Kind, Kind] = ("predicted", "measured")


class Reading(Frozen):
    """A value in the task's own units, and its standard error."""

    value: Finite | None
    """Null where it is unknown."""
    stderr: Stderr | None
    """Null where it is unknown."""
    documents: Annotated[int, Field(ge=0)] | None = left_out()
    """Number of measured documents, where the value on all is estimated from them;
    left out where all were measured."""

    @classmethod
    def of(
        cls, value: float | None, stderr: float | None, documents: int | None = None
    ) -> Reading:
        """Build from numbers; NaN and what no file may hold stand for unknown."""
        numbers = [x if abs(x or 0.0) <= LARGEST else None for x in (value, stderr)]
        return cls(value=numbers[0], stderr=numbers[1], documents=documents)

    def __str__(self) -> str:
        """Write ``0.67 ± 0.01``, or ``0.67 ± 0.01 (24 documents)``."""
        if self.value is None:
            return "-"
        stderr = f" ± {self.stderr:.1g}" if self.stderr else ""
        on = f" ({self.documents} documents)" if self.documents is not None else ""
        return f"{self.value:.4g}{stderr}{on}"


UNKNOWN = Reading(value=None, stderr=None)
Readings: TypeAlias = dict[Line, Reading]  # by task


class LinearMerge(Frozen):
    """A linear merge of the models on disk, which is no merge of the search."""

    merge: Line
    """Its fingerprint in the log."""
    weights: Coefficients
    """Weight of each model."""


class Merge(Frozen):
    """A merge with its predicted and measured values."""

    label: Line | None = left_out()
    """Name of a reference point: base, soup, or a model; or of a merge that has only
    one weight, or equal ones."""
    coefficients: Coefficients
    """Coefficients of the front; none for a reference point that has none there."""
    linear: LinearMerge | None = left_out()
    """How a reference point was measured that has no coefficients."""
    predicted: Readings | None = left_out()
    """Predicted values by task; missing where nothing was predicted."""
    measured: Readings
    """Measured values by task; of points and reference points on all documents."""
    foretold: Readings | None = left_out()
    """Values that were predicted before it was measured, by task."""

    @property
    def logged(self) -> Coefficients:
        """Return the coefficients that its measurements have in the log."""
        return self.coefficients if self.linear is None else self.linear.weights

    def readings(self, kind: Kind) -> Readings:
        """Return the predicted or measured values, by task."""
        return self.measured if kind == "measured" else self.predicted or {}

    def best_known(self, task: str) -> tuple[Reading, Kind]:
        """Return the value of a task, measured or else predicted, and which it is."""
        kind: Kind = "measured" if self.is_measured(task) else "predicted"
        return self.readings(kind).get(task, UNKNOWN), kind

    def is_measured(self, *tasks: str) -> bool:
        """Whether every one of these tasks has a measured value."""
        return all(self.measured[task].value is not None for task in tasks)

    @property
    def has_failed(self) -> bool:
        """Whether some task was tried, as it was foretold, but has no value."""
        foretold = (self.foretold or {}).items()
        return any(r.value is not None and not self.is_measured(t) for t, r in foretold)

    @property
    def weights(self) -> str:
        """Write the weights: ``math=0.31, code=0.587``."""
        return ", ".join(f"{n}={v:.4g}" for n, v in self.coefficients.items())


class HoldoutEvaluation(Frozen):
    """Merges measured on held-out documents."""

    documents: dict[Line, int]
    """Number of held-out documents, by task."""
    choices: int = Field(ge=0)
    """Number of merges that were measured on them because they were chosen."""
    merges: tuple[Merge, ...]
    """All merges measured on them, each with the tasks that were measured."""
    differences: dict[Line, Differences] = Field(default_factory=dict)
    """Standard errors of differences between these merges, by task."""

    def index(self, wanted: Merge) -> int | None:
        """Return the index of a merge, by its label or else by its coefficients."""
        for index, merge in enumerate(self.merges):
            named = merge.label == wanted.label is not None
            same_kind = (merge.linear is None) == (wanted.linear is None)
            if named or (same_kind and merge.logged == wanted.logged != {}):
                return index
        return None


class Front(Record):
    """A finished search: its front, its reference points, and the chosen point."""

    coefficients: dict[Line, Bounds] = Field(min_length=1)
    """The searched coefficients with their bounds."""
    groups: dict[Line, Coefficients] = Field(default_factory=dict)
    """With nested MAP: the merges whose weights the surrogates take."""
    order: Order | None = None
    """With nested MAP: the order of the pairs."""
    tasks: dict[Line, Task] = Field(min_length=1, max_length=MOST_TASKS)
    """The measured tasks."""
    surrogate: SurrogateKind = "quadratic"
    """The kind of the fits."""
    selected: int = Field(ge=0)
    """Index of the chosen point."""
    points: tuple[Merge, ...] = Field(min_length=1, max_length=10_000)
    """The front, worst on the first task first; last, other merges that were tried."""
    recommended: tuple[int, ...] = ()
    """Indices of the measured points that no measured merge of the search dominates."""
    ending: Ending | None = None
    """Why a search that refines its front stopped."""
    anchors: tuple[Merge, ...]
    """The base model, every model as it is on disk, and their plain average."""
    merges: tuple[Merge, ...] = ()
    """Other measured merges."""
    differences: dict[Line, Differences] = left_out({})
    """Standard errors of differences between merges on the same items, by task."""
    holdout: HoldoutEvaluation | None = left_out()
    """Results on held-out documents; left out where there are none."""
    border: tuple[Border, ...] = left_out(())
    """Bounds at which points lie, and beyond which better ones may lie."""
    unfinished: Unfinished | None = left_out()
    """Progress of an unfinished search; left out if it was finished."""
    select: Annotated[SelectSpec, AS_GIVEN] = SelectSpec()
    """Settings by which the point was chosen."""
    reason: Line
    """How the point was chosen, in a sentence."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.selected >= len(self.points):
            raise ValueError(f"selected: there are only {len(self.points)} points")
        for key, merges, kinds in (
            ("points", self.points, KINDS),
            ("anchors", self.anchors, KINDS),
            ("merges", self.merges, KINDS[1:]),
        ):
            for index, merge in enumerate(merges):
                if merge.coefficients or key != "anchors":
                    place = f"{key}.{index}.coefficients"
                    _check_names(place, merge.coefficients, self.coefficients)
                for kind in kinds:
                    names = merge.readings(kind)
                    _check_names(f"{key}.{index}.{kind}", names, self.tasks)
        for index, values in enumerate(self.utilities(self.points, "predicted")):
            if np.isnan(values).any() and self.unfinished is None:
                raise ValueError(f"points.{index}.predicted: a value is null")
        asked = {**(self.select.prefer or {}), **(self.select.require or {})}
        if not asked.keys() <= self.tasks.keys():
            raise ValueError(f"select: the tasks are {[*self.tasks]}")
        for rival in self.select.rivals:
            one_line(rival)
        compared = [(self.differences, self.all_merges)]
        if self.holdout is not None:
            compared.append((self.holdout.differences, self.holdout.merges))
        for differences, merges in compared:
            for task, one in differences.items():
                if task not in self.tasks or one.merges[-1] >= len(merges):
                    raise ValueError(f"differences.{task}: no such task, or merge")
        for label, group in self.groups.items():
            _check_names(f"groups.{label}", group, self.coefficients)
        axes = sorted(self.axes)
        for index, border in enumerate(self.border):
            if border.coefficient not in axes:
                raise ValueError(f"border.{index}.coefficient: the names are {axes}")
        return self

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield "points", len(self.points)
        yield "tasks", [*self.tasks]
        yield "chosen", self.selected

    @property
    def axes(self) -> tuple[str, ...]:
        """Return what the surrogates are functions of: coefficients, or groups."""
        return tuple(self.groups or self.coefficients)

    @property
    def axis_bounds(self) -> FloatArray:
        """Return the bounds of these, within which surrogates are fitted; (d, 2)."""
        return np.array([*axis_bounds(self.axes, self.coefficients).values()])

    @property
    def chosen(self) -> Merge:
        """Return the chosen point."""
        return self.points[self.selected]

    @property
    def all_merges(self) -> tuple[Merge, ...]:
        """List all merges, in the order of the rows of ``differences``."""
        return (*self.points, *self.anchors, *self.merges)

    @property
    def complete(self) -> IntArray:
        """List the merges measured on every task, as indices of ``all_merges``."""
        Y = self.utilities(self.all_merges, "measured")
        return np.flatnonzero(np.isfinite(Y).all(axis=1))

    @property
    def measured_points(self) -> IntArray:
        """List the points measured on every task."""
        complete = self.complete
        return complete[complete < len(self.points)]

    @property
    def anchor_indices(self) -> IntArray:
        """List the reference points, as indices of ``all_merges``."""
        return len(self.points) + np.arange(len(self.anchors))

    def anchor_index(self, label: str | None) -> int | None:
        """Return the index of a reference point in ``all_merges``, if there is one."""
        labels = [anchor.label for anchor in self.anchors]
        return len(self.points) + labels.index(label) if label in labels else None

    def best_parent(self, task: str) -> str | None:
        """Return the label of the single model that measured best in the search."""
        singles = (a for a in self.anchors if a.label not in NO_SINGLE_MODEL)
        measured = [single for single in singles if single.is_measured(task)]
        sign = self.tasks[task].metric.sign
        values = [sign * (single.measured[task].value or 0) for single in measured]
        return measured[int(np.argmax(values))].label if measured else None

    @property
    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of the tasks."""
        return {name: task.metric for name, task in self.tasks.items()}

    def utilities(self, merges: Iterable[Merge], kind: Kind) -> FloatArray:
        """Return the values, larger is better; (k, m), NaN where unknown."""
        signs = np.array([metric.sign for metric in self.metrics.values()])
        return signs * self._numbers(merges, kind, "value")

    def stderrs(self, merges: Iterable[Merge], kind: Kind) -> FloatArray:
        """Return the standard errors of ``utilities``; (k, m), NaN where unknown."""
        return self._numbers(merges, kind, "stderr")

    def _numbers(self, merges: Iterable[Merge], kind: Kind, field: str) -> FloatArray:
        readings = [merge.readings(kind) for merge in merges]
        rows = [[getattr(row[task], field) for task in self.tasks] for row in readings]
        # None becomes NaN.
        return np.array(rows, np.float64).reshape(len(rows), len(self.tasks))

    def with_point(self, index: int, point: Merge) -> Front:
        """Replace a point by its updated version."""
        points = (*self.points[:index], point, *self.points[index + 1 :])
        return self.model_copy(update={"points": points})


def _check_names(key: str, names: Iterable[str], expected: Iterable[str]) -> None:
    if set(names) != set(expected):
        raise ValueError(f"{key}: the names are {sorted(expected)}")
