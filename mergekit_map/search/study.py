"""A study: the coefficients, tasks and strategy of a search, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.errors import DesignError
from mergekit_map.optimize.nsga3 import compute_front
from mergekit_map.optimize.scalarization import scalarized_optimum
from mergekit_map.results.front import UNKNOWN, Ending, LinearMerge, Order, Readings
from mergekit_map.results.limits import Anchors, Request
from mergekit_map.results.log import Evaluation, Role
from mergekit_map.results.selection import choose
from mergekit_map.results.surrogates import fit_all, locate
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, inside, weight
from mergekit_map.surrogates.fit import Surrogate, Surrogates
from mergekit_map.surrogates.quadratic import n_quadratic_terms
from mergekit_map.types import (
    Answers,
    Measurement,
    MeasurementRequest,
    Metric,
    SurrogateKind,
)

_TIMES = 10  # the default number of merges, where a budget ends the search
Candidate: TypeAlias = tuple[Role, Mapping[str, float]]
Merges: TypeAlias = Mapping[str, Mapping[str, float]]  # label to coefficients
Rounds: TypeAlias = Sequence[Sequence[Candidate]]  # of a search, one after the other


class Evaluator(Protocol):
    """Merge with some coefficients and measure the result on one task."""

    def __call__(
        self,
        coefficients: Mapping[str, float],
        task: str,
        documents: tuple[int, ...] | None = None,
    ) -> Measurement:
        """Evaluate, on all documents or some of them, counted from 0.

        The merge may be kept from one call to the next.
        """

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Return the scores on record; None without any."""


@runtime_checkable
class WorksAhead(Protocol):
    """An evaluator that can work ahead on coming requests."""

    def expect(self, ahead: Sequence[MeasurementRequest]) -> None:
        """Take the list of the next requests, in order; no other comes before them."""


@dataclass(frozen=True)
class Study:
    """The coefficients, tasks and settings of a search."""

    bounds: Mapping[str, tuple[float, float]]  # of each coefficient
    # Base, parents and soup, as far as they are merges of the search, by label.
    anchors: Merges
    tasks: Mapping[str, Metric]
    definitions: Mapping[str, str]  # fingerprint of each task
    merge: str  # fingerprint of the merge
    search: SearchSpec
    select: SelectSpec
    # How many documents of a task are measured; all of those that are not named.
    documents: Mapping[str, int | Literal["all"]] = field(default_factory=dict)
    # The fingerprint of a merge, by its coefficients.
    recipe: Callable[[Mapping[str, float]], str] | None = None
    # What generates the answers of a task, where that is not Hugging Face's generate.
    engines: Mapping[str, str] = field(default_factory=dict)
    # Merges that are always measured, as anchors are, and are no reference points.
    corners: Merges = field(default_factory=dict)
    # The other reference points: the anchors of a study of linear merges.
    on_disk: Study | None = None

    @property
    def fixed(self) -> dict[str, Mapping[str, float]]:
        """Return the merges that every search of this study measures, by label."""
        return {**self.anchors, **self.corners}

    @property
    def labels(self) -> list[str]:
        """Return the labels of all reference points."""
        return [*self.anchors, *(self.on_disk.anchors if self.on_disk else ())]

    @property
    def linear(self) -> dict[str, LinearMerge]:
        """Return the reference points that are no merges of the search, by label."""
        return {
            label: LinearMerge(merge=part.merge, weights=dict(weights))
            for part in self.parts[1:]
            for label, weights in part.anchors.items()
        }

    @property
    def parts(self) -> list[Study]:
        """Return this study, and that of the other reference points if there is one."""
        return [self] if self.on_disk is None else [self, self.on_disk]

    def of_models(self, anchors: Merges, merge: str) -> Study:
        """Return the study of linear merges of the models, with this fingerprint."""
        return replace(
            self,
            bounds=dict.fromkeys(next(iter(anchors.values())), (0.0, 1.0)),
            anchors=anchors,
            corners={},
            on_disk=None,
            merge=merge,
            documents={},
        )

    def of_tasks(self, tasks: Iterable[str]) -> Study:
        """Return the study of these tasks alone."""
        names = list(tasks)
        return replace(
            self,
            tasks={task: self.tasks[task] for task in names},
            definitions={task: self.definitions[task] for task in names},
        )

    def is_whole(self, task: str) -> bool:
        """Whether every merge is measured on all documents of a task."""
        return self.documents.get(task, "all") == "all"

    @property
    def wanted_evaluations(self) -> int:
        """Return the evaluations asked for, or a default; with hours many times it."""
        times = 2 if self.search.hours is None else 2 * _TIMES
        return self.search.evaluations or times * n_quadratic_terms(len(self.bounds))

    @property
    def box(self) -> FloatArray:
        """Return the bounds as an array (d, 2)."""
        return np.array(list(self.bounds.values()), dtype=np.float64)

    def vector(self, coefficients: Mapping[str, float]) -> FloatArray:
        """Order coefficients as the columns of a design; returns (d,)."""
        return np.array([coefficients[name] for name in self.bounds])

    def vectors(self, merges: Iterable[Mapping[str, float]]) -> FloatArray:
        """Order merges as the rows of a design; returns (k, d)."""
        rows = [self.vector(merge) for merge in merges]
        return np.array(rows, np.float64).reshape(-1, len(self.bounds))

    def contains(self, X: FloatArray) -> BoolArray:
        """Return which rows of a design (k, d) lie within the bounds of fits; (k,)."""
        return inside(X, self.box)

    def rounded(self, vector: FloatArray) -> dict[str, float]:
        """Name the entries of a row of a design; those that are only rounding are 0."""
        return {n: weight(v) for n, v in zip(self.bounds, vector, strict=True)}

    def utilities(self, measured: Iterable[Mapping[str, Evaluation]]) -> FloatArray:
        """Return measured values as rows (k, m), larger is better, NaN if unknown."""
        signs = [metric.sign for metric in self.tasks.values()]
        rows = [
            [by_task[t].value if t in by_task else np.nan for t in self.tasks]
            for by_task in measured
        ]
        return np.array(rows, np.float64).reshape(-1, len(signs)) * signs

    def readings(self, known: Mapping[str, Evaluation]) -> Readings:
        """Return the measurements of a merge, by task; unknown where there is none."""
        return {t: known[t].reading if t in known else UNKNOWN for t in self.tasks}

    def candidates(self, points: FloatArray) -> list[Candidate]:
        """Convert a first design (k, d) to candidates, reference points marked."""
        anchors = set(map(tuple, self.vectors(self.fixed.values())))
        return [
            ("anchor" if tuple(row) in anchors else "design", self.rounded(row))
            for row in points
        ]

    def fit(
        self, evaluations: Iterable[Evaluation], kind: SurrogateKind | None = None
    ) -> dict[str, Surrogate]:
        """Fit a surrogate per task to all measurements within the bounds.

        ``kind`` replaces that of the search. Raises DesignError as ``fit_all``.
        """
        measured = list(evaluations)
        usable = [e for e in measured if not e.failed]
        X = locate((e.coefficients for e in usable), self.bounds, {}, self.box)
        kind = kind or self.search.surrogate
        try:
            return fit_all(self.tasks, self.box, kind, X, usable)
        except DesignError as error:
            failures = [f"; the last failure: {e.error}" for e in measured if e.error]
            raise DesignError(f"{error}{''.join(failures[-1:])}") from None

    def predict(self, surrogates: Surrogates, X: FloatArray) -> FloatArray:
        """Predict all tasks at the rows of ``X`` (k, d), larger is better; (k, m)."""
        signs = [self.tasks[task].sign for task in surrogates]
        return np.column_stack([s.predict(X) for s in surrogates.values()]) * signs

    def predicted_front(self, surrogates: Surrogates) -> FloatArray:
        """Return the front of the surrogates within the bounds; (k, d)."""
        predict = partial(self.predict, surrogates)
        return compute_front(predict, self.box, seed=self.search.seed)

    def choose(
        self, surrogates: Surrogates, front: FloatArray, anchors: Anchors
    ) -> tuple[FloatArray, int]:
        """Choose from a front (k, d) by predictions, as the study requires.

        A merge that is predicted to be better than all points becomes a further row. If
        none keeps the limits, the nearest is chosen. Returns the rows and the index of
        the chosen one. Raises ConfigError if a limit cannot be computed from the
        measurements, and DesignError if there is no such row.
        """
        predict = partial(self.predict, surrogates)
        request = Request(self.select, self.tasks, anchors)
        if self.select.index is None:
            best = scalarized_optimum(predict, self.box, front, request.scalarization())
            if best is not None:
                return np.vstack([front, best]), len(front)
        return front, choose(request, predict(front))


@dataclass(frozen=True, eq=False)
class StudyResult:
    """Surrogates, the front they predict, and the chosen point of it."""

    surrogates: Surrogates
    front: Sequence[Mapping[str, float]]  # coefficients, worst on the first task first
    selected: int
    # What the surrogates' coefficients multiply, where these are not the study's own:
    # label to coefficients of the study. Nested MAP searches such groups.
    groups: Merges = field(default_factory=dict)
    order: Order | None = None  # what nested MAP merged with what
    ending: Ending | None = None  # of a search that chooses its merges as it goes

    def locate(self, merges: Iterable[Mapping[str, float]], study: Study) -> FloatArray:
        """Return the places of merges on these axes; (k, d), NaN if not fitted."""
        bounds = next(iter(self.surrogates.values())).bounds  # those of all
        return locate(merges, study.bounds, self.groups, bounds)
