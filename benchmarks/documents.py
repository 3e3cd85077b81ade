"""Searches that measure a part of the documents, against those that measure all.

    python benchmarks/contest_families.py FAMILIES
    python benchmarks/documents.py run FAMILIES RUNS
    python benchmarks/documents.py table RUNS > .../results/documents.md

Families have known true values, document by document (``contest_truth.py``). A search
is the whole study. ``ours`` asks of each merge a part of the documents and estimates
what all would say; rivals ask as many and estimate otherwise (``RIVALS``). Anchors and
what is chosen in the end are measured on all documents by everyone.

Kept is a line per search: how many documents were measured, of merges in part and in
all; the hypervolume of the front and the regret of the chosen point, both in truth and
as in the contest (``contest_table.py``).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import multiprocessing
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from contest import study_of
from contest_table import Reference, markdown
from contest_truth import DOCUMENTS, LOSS, Array, Truth, scene
from documents_rivals import Rivals

from mergekit_map import Measurement
from mergekit_map.config.specs import SearchSpec
from mergekit_map.measurement import Answers, Part
from mergekit_map.results.opened_log import open_log
from mergekit_map.search.foresight import Foresight
from mergekit_map.search.sampling import PartValue
from mergekit_map.study import measuring
from mergekit_map.study.parts import Drawing, History
from mergekit_map.study.running import run_study
from mergekit_map.study.study import Study

FAMILIES = (*DOCUMENTS, "acc2_200", "acc3_200")
SHARES = {"1/16": 1 / 16, "1/8": 1 / 8, "1/4": 1 / 4, "auto": None}


class Documents:
    """The truth of a family in the place of models, document by document."""

    def __init__(self, study: Study, truth: Truth):
        self._study, self._truth = study, truth
        self._kept: dict[tuple[tuple[float, ...], str], Answers] = {}

    def __call__(
        self, coefficients: Mapping[str, float], task: str, part: Part | None = None
    ) -> Measurement:
        """Measure as a task does."""
        values, margins = self.all(tuple(self._study.vector(coefficients)))
        column = self._truth.names.index(task)
        ids = range(values.shape[1]) if part is None else part.ids
        said = values[column, list(ids)]
        answers = Answers(
            ids=tuple(ids),
            values=tuple(said.tolist()),
            weights=(1.0,) * len(said),
            margins=None if margins is None else tuple(margins[column, list(ids)]),
            probabilities=None if part is None else part.probabilities,
            expected=None if part is None else part.expected,
        )
        self._kept[tuple(self._study.vector(coefficients)), task] = answers
        stderr = float(said.std(ddof=1) / np.sqrt(len(said))) if len(said) > 1 else None
        value = float(said.mean()) if len(said) else np.nan
        return Measurement(value, stderr, len(said), answers=answers)

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Remember what was answered."""
        return self._kept.get((tuple(self._study.vector(coefficients)), task))

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def all(self, merge: tuple[float, ...]) -> tuple[Array, Array | None]:
        """Give values, and margins of answers, of a merge: (m, b)."""
        values = self._truth.items(np.array([merge]))[0]
        if self._truth.metric is LOSS:
            return values, None
        return values, self._truth.margins(np.array([merge]))[0]


@dataclass(frozen=True, eq=False)
class Subset(Drawing):
    """The plain mean of a random subset."""

    def estimate(self, answers: Answers) -> PartValue:
        """Take what was asked for the whole."""
        said, size = np.array(answers.values), len(self.weights)
        deviation = float(said.std(ddof=1)) if len(said) > 1 else 0.0
        left = max(1 / max(len(said), 1) - 1 / size, 0.0)
        return PartValue(
            value=float(said.mean()),
            stderr=deviation * np.sqrt(left),
            spread=deviation / np.sqrt(size),
            asked=len(said),
        )


def plain_subset(
    history: History, coefficients: Mapping[str, float], *, doubled: bool = False
) -> Drawing | None:
    """Draw so many documents at random."""
    if history.whole is None:
        return None
    size = len(history.whole.ids)
    count = int(history.study.documents[history.task]) * (1 + doubled)
    rng = np.random.default_rng(abs(hash(tuple(coefficients.values()))))
    ids = np.sort(rng.choice(size, count, replace=False))
    chances = np.full(size, count / size)
    part = Part(tuple(ids.tolist()), tuple(chances[ids].tolist()), count)
    foresight = history.foresee(coefficients, size)
    return Subset(part, chances, foresight, np.ones(size), exponential=False)


@dataclass(frozen=True, eq=False)
class Guess(Drawing):
    """What a rival says, which has no standard error."""

    value: float

    def estimate(self, answers: Answers) -> PartValue:
        """Take the rival's word."""
        spread = float(np.std(answers.values)) / np.sqrt(len(self.weights))
        return PartValue(self.value, 0.0, spread, len(answers.ids))


def of_rival(name: str) -> Callable[..., Drawing | None]:
    """Draw and estimate as a rival of ``documents_rivals.py`` does.

    Its documents are the same for all merges, as in the papers.
    """

    def draw(
        history: History, coefficients: Mapping[str, float], *, doubled: bool = False
    ) -> Drawing | None:
        rows = [a.values for e, a in history.known if e.role == "anchor"]
        if not rows:
            return None
        study, (values, _) = history.study, _truth_of(history.study, coefficients)
        size, binary = values.shape[1], study.tasks[history.task].higher_is_better
        n = int(history.study.documents[history.task]) * (1 + doubled)
        merge = values[[[*study.tasks].index(history.task)]]
        rivals = _fitted(tuple(rows), len(study.bounds) + 1, binary)
        [value] = rivals.estimates(merge, n, np.random.default_rng(0))[name]
        part = Part(tuple(range(n)), (n / size,) * n, n)
        foresight = Foresight(np.zeros(size), np.ones(size), 1.0)
        return Guess(part, np.full(size, n / size), foresight, np.ones(size), value)

    return draw


@functools.lru_cache(maxsize=8)
def _fitted(rows: tuple[tuple[float, ...], ...], parents: int, binary: bool) -> Rivals:
    return Rivals.fit(np.array(rows), parents, binary)


RIVALS: dict[str, Callable[..., Drawing | None]] = {
    "subset": plain_subset,
    **{
        name: of_rival(name)
        for name in ("anchor points, values", "p-IRT", "gp-IRT", "mp-IRT", "gmp-IRT")
    },
}
_EVALUATORS: list[Documents] = []


def _truth_of(
    study: Study, coefficients: Mapping[str, float]
) -> tuple[Array, Array | None]:
    return _EVALUATORS[-1].all(tuple(study.vector(coefficients)))


@contextlib.contextmanager
def _drawn_by(method: str, evaluate: Documents) -> Iterator[None]:
    before = measuring.draw_part
    measuring.draw_part = RIVALS.get(method, before)
    _EVALUATORS.append(evaluate)
    yield
    _EVALUATORS.pop()
    measuring.draw_part = before


def search(
    truth: Truth, method: str, share: str, seed: int, evaluations: int | None
) -> dict[str, Any]:
    """Run a whole study, and look its front and its choice up in truth."""
    study = study_of(truth, SearchSpec(seed=seed, evaluations=evaluations))
    size = truth.items(np.zeros((1, len(truth.bounds)))).shape[2]
    part, wish = SHARES.get(share), "all"
    if share != "all":
        wish = "auto" if part is None else round(size * part)
    study = replace(study, documents=dict.fromkeys(study.tasks, wish))
    evaluate = Documents(study, truth)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_log(Path(folder) / "log") as log,
        _drawn_by(method, evaluate),
    ):
        result = run_study(study, evaluate, log, lambda _: None)
        lines = list(log)
    reference = Reference.of(truth)
    front = study.vectors(result.front)
    parts = [e for e in lines if not e.whole]
    errors = [
        (e.value - truth.predict(study.vectors([e.coefficients]))[0, column]) / e.stderr
        for e in parts
        for column in [truth.names.index(e.task)]
        if e.stderr
    ]
    return {
        "front": reference.volume(front),
        "regret": reference.regret(front[result.selected]),
        "documents": sum(e.n for e in lines) / size / len(truth.names),
        "merges": len({e.key[0] for e in lines}),
        "part": sum(e.n for e in parts) / size / max(len(parts), 1),
        "parts": len(parts) / len(truth.names),
        "errors": errors,
    }


def _jobs(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in range(arguments.seeds):
        for family in arguments.families:
            yield {"family": family, "method": "ours", "share": "all", "seed": seed}
            for method in arguments.methods:
                for share in arguments.shares:
                    if share == "auto" and method in RIVALS:
                        continue
                    yield {
                        "family": family,
                        "method": method,
                        "share": share,
                        "seed": seed,
                    }


def _run(folder: Path, evaluations: int | None, job: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    truth = _truth(folder, job["family"])
    found = search(truth, job["method"], job["share"], job["seed"], evaluations)
    return {**job, **found, "seconds": time.perf_counter() - started}


@functools.lru_cache(maxsize=1)
def _truth(folder: Path, name: str) -> Truth:
    return scene(folder, name)


def run(arguments: argparse.Namespace) -> None:
    """Do the searches that the record does not have yet."""
    path: Path = arguments.runs
    lines = path.read_text().splitlines() if path.exists() else []
    keys = ("family", "method", "share", "seed")
    known = {tuple(json.loads(line)[k] for k in keys) for line in lines}
    missing = [job for job in _jobs(arguments) if tuple(job.values()) not in known]
    work = functools.partial(_run, arguments.folder, arguments.evaluations)
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for outcome in pool.imap_unordered(work, missing):
            with path.open("a") as file:
                file.write(json.dumps(outcome) + "\n")
            shown = {k: v for k, v in outcome.items() if k != "errors"}
            print(*(f"{v:.4g}" if isinstance(v, float) else v for v in shown.values()))
            sys.stdout.flush()


def table(arguments: argparse.Namespace) -> None:
    """Print medians over the seeds, with the worst."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in arguments.runs:
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            found[entry["family"], entry["method"], entry["share"]].append(entry)
    rows = []
    for (family, method, share), entries in sorted(found.items()):
        column = {k: np.array([e[k] for e in entries]) for k in entries[0] if k in _K}
        z = np.concatenate([e["errors"] for e in entries])
        used = f"{np.median(column['documents']):.1f} of {column['merges'].mean():.1f}"
        rows.append(
            [
                *(family, method, share, str(len(entries))),
                f"{np.median(column['part']):.3f}" if share != "all" else "1",
                used,
                f"{np.median(column['front']):.4f} ({column['front'].min():.4f})",
                f"{np.median(column['regret']):.2f} ({column['regret'].max():.2f})",
                f"{np.mean(np.abs(z) <= 1.96):.3f} of {len(z)}" if len(z) else "",
            ]
        )
    columns = ("family", "method", "share", "seeds", "asked", "documents", "front")
    print(HEAD)
    print("\n".join(markdown((*columns, "regret, %", "covered"), rows)))


HEAD = """\
# Searches that measure a part of the documents

    python benchmarks/contest_families.py FAMILIES
    python benchmarks/documents.py run FAMILIES RUNS
    python benchmarks/documents.py table RUNS > .../results/documents.md

Medians over the seeds, the worst in brackets. *Share*: how many documents a merge is
first asked; more of its front, and where more teach more. *Asked*: the share of the
documents that merges measured in part were asked in all. *Documents*: all that were
measured, as so many whole merges, of how many merges; anchors, ends and choice are
measured on all. *Front* and *regret*: as in ``contest.md``, of the true values on all
documents. *Covered*: estimates whose 95 % interval holds the value on all documents.
Rivals have no standard errors, but for the plain subset.
"""

_K = ("part", "documents", "merges", "front", "regret")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(call=run)
    command.add_argument("folder", type=Path)
    command.add_argument("runs", type=Path, help="a .jsonl file")
    command.add_argument("--families", nargs="+", default=FAMILIES)
    command.add_argument("--methods", nargs="+", default=["ours", *RIVALS])
    command.add_argument("--shares", nargs="+", default=["1/8", "1/4"])
    command.add_argument("--seeds", type=int, default=5)
    command.add_argument("--evaluations", type=int)
    command.add_argument("--processes", type=int, default=1)
    command = commands.add_parser("table")
    command.set_defaults(call=table)
    command.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
