"""A finished search, and what was measured of it, read from its run folder.

Notation: ``m`` tasks; utilities are larger is better, NaN where a measurement failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mergekit_map.compare.contest import (
    ComparisonSpec,
    Contest,
    read_utilities,
    run_contest,
)
from mergekit_map.compare.indicators import Scale, by_ideal_and_nadir
from mergekit_map.compare.measured_log import Bench, Rivals, Terms
from mergekit_map.evaluation.finished_project import finished_project
from mergekit_map.evaluation.project import Project, quiet_options
from mergekit_map.optimize.selection import spread
from mergekit_map.results.front import Front
from mergekit_map.results.log import (
    ASSESSING,
    Evaluation,
    EvaluationLog,
    merge_key,
    open_log,
    read_log,
)
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Study
from mergekit_map.surrogates.arrays import FloatArray
from paper.adamerging import adapted

FRONT_POINTS = 100  # that are measured of a front, at most: the paper's K


class Assessed(NamedTuple):
    """Points of a front, as predicted and as measured, larger is better; (k, m)."""

    predicted: FloatArray
    measured: FloatArray


@dataclass(frozen=True)
class Searched:
    """A finished search."""

    path: Path
    spent: list[float] = field(repr=False)  # seconds, of what was not there

    @cached_property
    def front(self) -> Front:
        """Read the front."""
        return RunFolder(self.path).read_front()

    @cached_property
    def project(self) -> Project:
        """Open the project, of which no model is loaded."""
        return finished_project(self.path, quiet_options(None), trust_run=True)

    @cached_property
    def study(self) -> Study:
        """Give what was searched, in the box that the search ended with."""
        return replace(self.project.study(), bounds=self.front.coefficients)

    @cached_property
    def log(self) -> list[Evaluation]:
        """List what was measured of these models on these tasks, in its order."""
        return matching(self.project.study(), read_log(RunFolder(self.path).log))

    @property
    def own_merges(self) -> list[Mapping[str, float]]:
        """List the merges that the search itself asked for and fitted, in order.

        Its anchors, its design, what refines it and, if it refines itself, what it
        measures of its front; not what was measured to judge it by.
        """
        refines = self.study.search.refines
        merges = {
            merge_key(e.coefficients): e.coefficients
            for e in self.log
            if e.role not in ASSESSING
            or (refines and e.role == "front" and e.foretold is not None)
        }
        return list(merges.values())

    @cached_property
    def own(self) -> FloatArray:
        """Read what was measured of its own merges, in order; (n, m)."""
        return self.utilities(self.own_merges)

    def assessed(self, count: int = FRONT_POINTS) -> Assessed:
        """Measure points of the front, to judge it by; what a search does not fit."""
        predicted, merges = self._points(count)
        if np.isnan(self.utilities(merges)).any():
            self._measure(merges)
        return Assessed(predicted, self.utilities(merges))

    def _points(self, count: int) -> tuple[FloatArray, list[Mapping[str, float]]]:
        """Return so many points of the front, as predicted, and their merges."""
        predicted = self.front.utilities(self.front.points, "predicted")
        rows = sorted(spread(predicted, count))
        return predicted[rows], [self.front.points[row].coefficients for row in rows]

    def _measure(self, merges: Sequence[Mapping[str, float]]) -> None:
        folder, began = RunFolder(self.path), time.monotonic()
        with open_log(folder.log) as log:
            total = len(merges) * len(self.front.metrics)
            bench = Bench(folder, log, lambda _: None, total)
            with bench.open(self.project) as measure:
                measure("front", merges)
        self.__dict__.pop("log", None)
        self.spent.append(time.monotonic() - began)
        shown = f"{len(merges)} points of the front of {self.path.name}"
        print(f"{self.spent[-1]:6.0f} s  {shown}", flush=True)

    def utilities(self, merges: Sequence[Mapping[str, float]]) -> FloatArray:
        """Read what was measured of merges, larger is better; (n, m)."""
        return read_utilities(self.project.study(), self.log, merges)


@dataclass(frozen=True)
class Compared(Searched):
    """A finished search, and what was measured of its front and of others."""

    out: Path  # where the tables are
    spec: ComparisonSpec

    @cached_property
    def contest(self) -> Contest:
        """Read again what was measured; the opponents ask, and the log answers."""
        log = EvaluationLog(RunFolder(self.path).log, self.log)

        def known(_: object, merges: Sequence[Mapping[str, float]]) -> FloatArray:
            return read_utilities(self.study, log, merges)

        return run_contest(self.study, self.shown, self.spec, log, known)

    @property
    def shown(self) -> list[Mapping[str, float]]:
        """List the merges of the front that were measured to judge it by."""
        return self._points(self.spec.points)[1]

    @cached_property
    def preferences(self) -> FloatArray:
        """Give the random preferences of the comparison; (P, m)."""
        return np.array(self.report["preference_vectors"])

    @cached_property
    def scale(self) -> Scale:
        """Give the units in which metrics are added up, as the comparison did."""
        return by_ideal_and_nadir(self.contest.reference)

    @cached_property
    def adapted(self) -> Mapping[str, FloatArray]:
        """Measure what AdaMerging finds, unless the log has it; (m,)."""
        folder = RunFolder(self.path)
        terms = Terms(self.spec, self.preferences, self.scale)
        with open_log(folder.log) as log:
            bench = Bench(folder, log, lambda _: None, total=0)
            rivals = Rivals(bench, self.project, terms, print)
            return adapted(rivals, self.out / "adamerging.json")

    @cached_property
    def report(self) -> Mapping[str, Any]:
        """Read what the command said of this search."""
        text = (self.out / "comparison.json").read_text(encoding="utf-8")
        found: Mapping[str, Any] = json.loads(text)["runs"][0]
        return found
