"""Searches of a family's models by the ordinary program, each measured once.

A run folder is named by its models and by what is other than usual; where it holds a
finished search of the same configuration, nothing is done again. The same is true of
comparisons: all that they measure is in the log of the run folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from laboratory.family import Family, configuration
from laboratory.measuring import measure

from mergekit_map.cli.main import main
from mergekit_map.compare.contest import ComparisonSpec
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.utils.files import digest, write_atomically, write_json
from paper.published import WIN_RATES
from paper.searched import Compared, Searched

KIND = "loss"  # of the tasks
OPPONENTS = ("random", "moead")
# The paper's own plain algorithm, its evaluations aside. Points of a front that a
# search measures itself it also fits, which the paper does not.
PAPER = {
    "design": "uniform",
    "surrogate": "quadratic",
    "refine": False,
    "remeasure": 0,
}


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
    spent: list[float] = field(default_factory=list)  # seconds, of what was not there

    @property
    def models(self) -> list[str]:
        """List the models that have a task, in the family's order."""
        names = [
            model.name
            for model in self.family.models
            if self.family.tasks_of([model.name], KIND)
        ]
        return names[: self.most]

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
        content = configuration(self.family, models, KIND, **search)
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

    def grid(self, models: Sequence[str], merges: int) -> Searched:
        """Measure a grid of merges, and nothing of what it says."""
        asked = {"design": "grid", "refine": False, "remeasure": 0, "seed": 0}
        return self.search(models, f"grid{merges}", evaluations=merges, **asked)

    def compare(self, searched: Searched, merges: int) -> Compared:
        """Hold a search against others, which measures what is missing of them."""
        names = ",".join(OPPONENTS)
        out = searched.path / f"compare-{merges}-{'-'.join(OPPONENTS)}"
        if not (out / "comparison.json").exists():
            asked = ("--opponents", names, "--budget", merges)
            self.command("compare", searched.path, "--out", out, *asked)
        return Compared(
            searched.path, self.spent, out, ComparisonSpec(OPPONENTS, merges)
        )

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
            began = time.monotonic()
            values = measure(content, np.array(missing)).tolist()
            done |= dict(zip(map(str, missing), values, strict=True))
            write_json(path, done)
            self.spent.append(time.monotonic() - began)
            shown = f"{len(missing)} merges of {folder.name}/{path.name}"
            print(f"{self.spent[-1]:6.0f} s  {shown}", flush=True)
        return np.array([done[str(x)] for x in X.tolist()], np.float64)

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
