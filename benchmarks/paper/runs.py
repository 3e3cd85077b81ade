"""Searches of a family's models by the ordinary program, each measured once.

A run folder is named by its models and by what is other than usual; where it holds a
finished search of the same configuration, nothing is done again. The same is true of
comparisons: all that they measure is in the log of the run folder.

Notation: ``m`` tasks; utilities are larger is better, NaN where a measurement failed.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from laboratory.family import Family, configuration, measure

from mergekit_map.cli.main import main
from mergekit_map.compare.contest import (
    Bench,
    ComparisonSpec,
    Contest,
    read_utilities,
    run_contest,
)
from mergekit_map.evaluation.project import Project, finished_project, quiet_options
from mergekit_map.optimize.scalarization import farthest_point_subset
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
from mergekit_map.utils.files import digest, write_atomically, write_json
from paper.adamerging import adapted
from paper.published import WIN_RATES

OPPONENTS = ("random", "moead")
# The paper's own plain algorithm, its evaluations aside. Points of a front that a
# search measures itself it also fits, which the paper does not.
PAPER: dict[str, Any] = {"design": "uniform", "surrogate": "quadratic"}
PAPER |= {"refine": False, "remeasure": 0}
FRONT_POINTS = 100  # that are measured of a front, at most: the paper's K


class Unfit(Exception):
    """A family that a table or figure cannot be made of, and why."""


@dataclass(frozen=True)
class Runs:
    """The searches of one family, in one folder."""

    family: Family
    folder: Path
    share: float = 1.0  # of the paper's budgets for direct search and MOEA/D
    tokens: int = 512  # of each text
    most: int = 8  # models
    dtype: str | None = None  # of the merges
    spent: list[float] = field(default_factory=list)  # seconds, of what was not there

    @property
    def models(self) -> list[str]:
        """List the models of the family, or as many as are asked for."""
        return self.family.models[: self.most]

    @property
    def sizes(self) -> list[int]:
        """List the numbers of models that the paper has, as far as there are models."""
        return [n for n in WIN_RATES if n <= len(self.models)]

    def direct(self, n: int) -> int:
        """Return the merges of a direct search of n models: a share of the paper's."""
        return max(4, round(self.share * WIN_RATES[n].direct))

    def name_of(self, models: Sequence[str]) -> str:
        """Name the searches of some models."""
        first = list(models) == self.models[: len(models)]
        return f"n{len(models)}" if first else "+".join(models)

    def content(self, models: Sequence[str], **search: Any) -> dict[str, Any]:
        """Return the content of a configuration."""
        content = configuration(self.family, models, **search)
        content["dtype"] = self.dtype or content["dtype"]
        for task in content["map"]["tasks"].values():
            task["max_tokens"] = self.tokens
        return content

    def search(
        self, models: Sequence[str], variant: str = "", **search: Any
    ) -> Searched:
        """Search, unless that is done already."""
        name = "-".join(filter(None, [self.name_of(models), variant]))
        content = self.content(models, **search)
        config, run = self.folder / f"{name}.yml", self.folder / name
        text = yaml.safe_dump(content, sort_keys=False)
        done = RunFolder(run).manifest.exists() and (
            RunFolder(run).config.read_text(encoding="utf-8") == text
        )
        if not done:
            for old in run.glob("compare-*"):
                shutil.rmtree(old)  # of what was searched here before
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(config, text)
            self.command("search", config, run)
        return Searched(run, self.spent)

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

    def grid(self, pair: Sequence[str], merges: int) -> FloatArray:
        """Measure a grid of at most so many merges; (n, m), larger is better."""
        axis = np.linspace(0, 1, int(merges**0.5))
        X = np.array([(x, y) for x in axis for y in axis])
        return -self.measured(self.folder / "grid", self.content(pair), X)  # losses

    def compare(self, n: int) -> Compared:
        """Hold a default search of n models against others."""
        searched, merges = self.plain(self.models[:n]), self.direct(n)
        names = ",".join(OPPONENTS)
        out = searched.path / f"compare-{merges}-{'-'.join(OPPONENTS)}"
        if not (out / "comparison.json").exists():
            asked = ("--opponents", names, "--budget", merges)
            self.command("compare", searched.path, "--out", out, *asked)
        spec = ComparisonSpec(OPPONENTS, merges)
        return Compared(searched.path, self.spent, out, spec)

    def measured(
        self, folder: Path, content: Mapping[str, Any], X: FloatArray
    ) -> FloatArray:
        """Measure merges (n, d) of a configuration, unless a file there has them.

        Returns (n, m) in the tasks' own units.
        """
        folder.mkdir(parents=True, exist_ok=True)
        models = [Path(model["model"]).name for model in content["models"]]
        known = digest([self.family.digest, content])
        path = folder / f"{self.name_of(models)}-{known}.json"
        done = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        missing = [x for x in np.unique(X, axis=0).tolist() if str(x) not in done]
        if missing:
            shown = f"{len(missing)} merges of {folder.name}/{path.name}"
            with timed(self.spent, shown):
                values = measure(content, np.array(missing)).tolist()
            done |= dict(zip(map(str, missing), values, strict=True))
            write_json(path, done)
        return np.array([done[str(x)] for x in X.tolist()], np.float64)

    def command(self, *arguments: object) -> None:
        """Run a command of the program, and say how long it took."""
        shown = [Path(a).name if isinstance(a, Path) else str(a) for a in arguments]
        with (
            timed(self.spent, " ".join(shown)),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            code = main([*map(str, arguments), "--quiet"], standalone_mode=False)
        if code:
            raise SystemExit(code)


@contextlib.contextmanager
def timed(spent: list[float], shown: str) -> Iterator[None]:
    """Note how long something takes, and print it."""
    began = time.monotonic()
    yield
    spent.append(time.monotonic() - began)
    print(f"{spent[-1]:6.0f} s  {shown}", flush=True)


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
            shown = f"{len(merges)} points of the front of {self.path.name}"
            with (
                timed(self.spent, shown),
                open_log(RunFolder(self.path)) as log,
                Bench(self.project, log).open(self.project) as measure,
            ):
                measure("front", merges)
            self.__dict__.pop("log", None)
        return Assessed(predicted, self.utilities(merges))

    def _points(self, count: int) -> tuple[FloatArray, list[Mapping[str, float]]]:
        """Return so many points of the front, as predicted, and their merges."""
        predicted = self.front.utilities(self.front.points, "predicted")
        rows = sorted(farthest_point_subset(predicted, count))
        return predicted[rows], [self.front.points[row].coefficients for row in rows]

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
        log = EvaluationLog(RunFolder(self.path), self.log)

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
    def adapted(self) -> Mapping[str, FloatArray]:
        """Measure what AdaMerging finds, unless the log has it; (m,)."""
        with open_log(RunFolder(self.path)) as log:
            return adapted(Bench(self.project, log), self.out / "adamerging.json")

    @cached_property
    def report(self) -> Mapping[str, Any]:
        """Read what the command said of this search."""
        text = (self.out / "comparison.json").read_text(encoding="utf-8")
        found: Mapping[str, Any] = json.loads(text)["runs"][0]
        return found
