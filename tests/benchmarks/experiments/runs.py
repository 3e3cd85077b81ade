"""Searches of a family's models by the ordinary program, each measured once.

A run folder is named by its models and by what is other than usual; where it holds a
finished search of the same configuration, nothing is done again. The same is true of
comparisons: all that they measure is in the log of the run folder.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from experiments.published import WIN_RATES
from laboratory.family import Family, configuration

from mergekit_map.cli import main
from mergekit_map.compare.baselines import measure_baselines
from mergekit_map.compare.bench import Bench, Terms
from mergekit_map.compare.contest import (
    ComparisonSpec,
    Contest,
    hold_contest,
    read_utilities,
)
from mergekit_map.compare.indicators import draw_preferences
from mergekit_map.compare.scores import Scale, as_they_are, by_ideal_and_nadir
from mergekit_map.files import write_atomically
from mergekit_map.measurement import Metric
from mergekit_map.results.front import Front
from mergekit_map.results.log import ASSESSING, Evaluation, merge_key, read_log
from mergekit_map.results.opened_log import EvaluationLog, open_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.selection import spread
from mergekit_map.steps.drafting import quietly
from mergekit_map.steps.finished import finished_project
from mergekit_map.steps.project import Project
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Study

OPPONENTS = ("random", "moead")
# The paper's own plain algorithm, its evaluations aside. Points of a front that a
# search measures itself it also fits, which the paper does not.
PAPER = {
    "design": "uniform",
    "surrogate": "quadratic",
    "refine": False,
    "remeasure": 0,
}
FRONT_POINTS = 100  # that are measured of a front, at most: the paper's K


class Unfit(Exception):
    """A family that a table or figure cannot be made of, and why."""


@dataclass(frozen=True)
class Runs:
    """The searches of one family, in one folder."""

    family: Family
    folder: Path
    kind: str  # of the tasks
    share: float = 1.0  # of the paper's budgets for direct search and MOEA/D
    tokens: int = 512  # of each text, where it has more
    most: int = 8  # models
    spent: list[float] = field(default_factory=list)  # seconds, of what was not there

    @property
    def models(self) -> list[str]:
        """List the models that have a task, in the family's order."""
        names = [
            model.name
            for model in self.family.models
            if self.family.tasks_of([model.name], self.kind)
        ]
        return names[: self.most]

    @property
    def sizes(self) -> list[int]:
        """List the numbers of models that the paper has, as far as there are models."""
        return [n for n in WIN_RATES if n <= len(self.models)]

    def pairs(self) -> list[tuple[str, str]]:
        """List pairs of models, those that share no model with the last one first."""
        names = self.models
        apart = list(zip(names[::2], names[1::2], strict=False))
        others = [p for p in itertools.combinations(names, 2) if p not in apart]
        return [*apart, *others]

    def budget(self, merges: int) -> int:
        """Give the share of a budget that is spent here."""
        return max(4, round(self.share * merges))

    def direct(self, n: int) -> int:
        """Give the merges of a direct search of n models."""
        return self.budget(WIN_RATES[n].direct)

    def name_of(self, models: Sequence[str]) -> str:
        """Name the searches of some models."""
        first = list(models) == self.models[: len(models)]
        return f"n{len(models)}" if first else "+".join(models)

    def content(
        self, models: Sequence[str], method: str = "task_arithmetic", **search: Any
    ) -> dict[str, Any]:
        """Give the content of a configuration."""
        content = configuration(self.family, models, self.kind, method, **search)
        for task in content["map"]["tasks"].values():
            if "perplexity" in task:
                task["max_tokens"] = min(task["max_tokens"], self.tokens)
        return content

    def search(
        self,
        models: Sequence[str],
        variant: str = "",
        *,
        parameters: Mapping[str, Any] | None = None,
        select: Mapping[str, Any] | None = None,
        method: str = "task_arithmetic",
        **search: Any,
    ) -> Searched:
        """Search, unless that is done already."""
        name = "-".join(filter(None, [self.name_of(models), variant]))
        content = self.content(models, method, **search)
        if parameters:
            content["parameters"] = dict(parameters)
        if select:
            content["map"]["select"] = dict(select)
        config, run = self.folder / f"{name}.yml", self.folder / name
        text = yaml.safe_dump(content, sort_keys=False)
        done = RunFolder(run).manifest.exists() and (
            RunFolder(run).config.read_text(encoding="utf-8") == text
        )
        if not done:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(config, text)
            self.command("search", config, run)
        return Searched(self, run)

    def plain(self, models: Sequence[str], seed: int = 0) -> Searched:
        """Search as the program does by default."""
        return self.search(models, f"seed{seed}" if seed else "", seed=seed)

    def as_in_the_paper(
        self, models: Sequence[str], evaluations: int, seed: int = 0
    ) -> Searched:
        """Search by the paper's algorithm 1, with so many merges."""
        variant = f"paper{evaluations}" + (f"-seed{seed}" if seed else "")
        asked = {**PAPER, "evaluations": evaluations, "seed": seed}
        return self.search(models, variant, **asked)

    def direct_search(
        self, models: Sequence[str], merges: int, design: str = "grid"
    ) -> Searched:
        """Measure a grid of merges, or uniform ones, and nothing of what they say."""
        asked = {"design": design, "refine": False, "remeasure": 0}
        return self.search(models, f"{design}{merges}", evaluations=merges, **asked)

    def compare(
        self, searched: Searched, merges: int, opponents: Sequence[str] = OPPONENTS
    ) -> Compared:
        """Hold a search against others, which measures what is missing of them."""
        names = ",".join(opponents)
        out = searched.path / f"compare-{merges}-{names.replace(',', '-')}"
        if not (out / "comparison.json").exists():
            asked = ("--opponents", names, "--budget", merges)
            self.command("compare", searched.path, "--out", out, *asked)
        return Compared(self, searched.path, out, merges, tuple(opponents))

    def command(self, *arguments: object) -> None:
        """Run a command of the program, and say how long it took."""
        shown = [Path(a).name if isinstance(a, Path) else str(a) for a in arguments]
        began = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()):
            code = main([*map(str, arguments), "--quiet"], standalone_mode=False)
        if code:
            raise SystemExit(code)
        self.spent.append(time.monotonic() - began)
        print(f"{self.spent[-1]:6.0f} s  {' '.join(shown)}", flush=True)


class Assessed(NamedTuple):
    """Points of a front, as predicted and as measured, larger is better; (k, m)."""

    predicted: FloatArray
    measured: FloatArray


@dataclass(frozen=True)
class Searched:
    """A finished search."""

    runs: Runs
    path: Path

    @cached_property
    def front(self) -> Front:
        """Read the front."""
        return RunFolder(self.path).read_front()

    @cached_property
    def project(self) -> Project:
        """Open the project, of which no model is loaded."""
        return finished_project(self.path, quietly(None))

    @cached_property
    def study(self) -> Study:
        """Give what was searched, in the box that the search ended with."""
        return replace(self.project.study(), bounds=self.front.coefficients)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Give the tasks."""
        return self.front.metrics

    @cached_property
    def log(self) -> list[Evaluation]:
        """List what was measured of these models on these tasks, in its order."""
        return matching(self.project.study(), read_log(RunFolder(self.path).log))

    @cached_property
    def own(self) -> FloatArray:
        """Read what the search itself asked for and fitted, in order; (n, m).

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
        return self.utilities(list(merges.values()))

    def assessed(self, count: int = FRONT_POINTS) -> Assessed:
        """Measure points of the front, to judge it by; what a search does not fit."""
        front = self.front
        predicted = front.utilities(front.points, "predicted")
        rows = sorted(spread(predicted, count))
        merges = [front.points[row].coefficients for row in rows]
        if np.isnan(self.utilities(merges)).any():
            self._measure(merges)
        return Assessed(predicted[rows], self.utilities(merges))

    def _measure(self, merges: Sequence[Mapping[str, float]]) -> None:
        folder, began = RunFolder(self.path), time.monotonic()
        with open_log(folder.log) as log:
            total = len(merges) * len(self.metrics)
            bench = Bench(folder, log, lambda _: None, total)
            with bench.open(self.project) as measure:
                measure("front", merges)
        self.__dict__.pop("log", None)
        self.runs.spent.append(time.monotonic() - began)
        shown = f"{len(merges)} points of the front of {self.path.name}"
        print(f"{self.runs.spent[-1]:6.0f} s  {shown}", flush=True)

    def utilities(self, merges: Sequence[Mapping[str, float]]) -> FloatArray:
        """Read what was measured of merges, larger is better; (n, m)."""
        log = EvaluationLog(RunFolder(self.path).log, self.log, in_memory=True)
        return read_utilities(self.project.study(), log, merges)

    def values(self, utilities: FloatArray) -> FloatArray:
        """Say utilities (n, m) in the tasks' own units."""
        signs = [metric.sign for metric in self.metrics.values()]
        return np.asarray(utilities * signs)


@dataclass(frozen=True)
class Compared(Searched):
    """A finished search, and what was measured of its front and of others."""

    out: Path  # where the tables are
    merges: int  # of each opponent
    opponents: tuple[str, ...]

    @cached_property
    def spec(self) -> ComparisonSpec:
        """Say how they were compared."""
        return ComparisonSpec(self.opponents, self.merges)

    @cached_property
    def contest(self) -> Contest:
        """Read again what was measured; the opponents ask, and the log answers."""
        log = EvaluationLog(RunFolder(self.path).log, self.log, in_memory=True)
        predicted = self.front.utilities(self.front.points, "predicted")
        rows = sorted(spread(predicted, self.spec.points))
        points = [self.front.points[row].coefficients for row in rows]

        def known(_: object, merges: Sequence[Mapping[str, float]]) -> FloatArray:
            return read_utilities(self.study, log, merges)

        return hold_contest(self.study, points, self.spec, log, known)

    @cached_property
    def preferences(self) -> FloatArray:
        """Give the random preferences of the comparison; (P, m)."""
        rng = np.random.default_rng(self.spec.seed)
        return draw_preferences(len(self.metrics), rng, self.spec.preferences)

    @cached_property
    def scale(self) -> Scale:
        """Give the units in which metrics are added up, as the comparison did."""
        shares = all(
            (m.higher_is_better, m.lower, m.upper) == (True, 0, 1)
            for m in self.metrics.values()
        )
        if shares:
            return as_they_are(len(self.metrics))
        return by_ideal_and_nadir(self.contest.reference)

    @cached_property
    def baselines(self) -> Mapping[str, FloatArray]:
        """Read again what was measured of the single merges: (m,), or (P, m)."""
        folder = RunFolder(self.path)
        log = EvaluationLog(folder.log, list(read_log(folder.log)), in_memory=True)
        bench = Bench(folder, log, lambda _: None, total=0)
        terms = Terms(self.spec, self.preferences, self.scale)
        found = measure_baselines(bench, self.project, terms, lambda _: None)
        return {name: np.atleast_2d(Y) for name, Y in found.items()}

    @cached_property
    def report(self) -> Mapping[str, Any]:
        """Read what the command said of this search."""
        text = (self.out / "comparison.json").read_text(encoding="utf-8")
        found: Mapping[str, Any] = json.loads(text)
        return {**found["runs"][0], "unit": found["unit"]}
