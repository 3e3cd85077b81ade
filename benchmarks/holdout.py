"""Searches that choose on one half of the documents, confirmed on the other half.

    python benchmarks/contest_families.py FAMILIES
    python benchmarks/holdout.py run FAMILIES RUNS
    python benchmarks/holdout.py table RUNS > .../results/holdout.md

Families have known true values, document by document (``contest_truth.py``). A search
is the whole study on a random half of them, at most 20 merges. What is promised of the
chosen merge, against the base, the best single model and the soup, is the difference
that the search measured on its half; what is kept of that, the difference on the other
half. Both come with standard errors, item by item, as a user gets them.

Kept is a line per search: for each task and rival, both differences and their errors,
larger is better, and the difference that was predicted. In the table a promise is in
units of the standard error of kept less promised, which has both halves in it; it is
averaged over the tasks and rivals of a search, and ± is over searches. Covered are
gains whose difference is within 1.96 of these units.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from contest import study_of
from contest_table import markdown
from contest_truth import Array, Truth, scene
from documents import FAMILIES, Documents

from mergekit_map.config.specs import SearchSpec
from mergekit_map.measurement import BASE, SOUP
from mergekit_map.results.opened_log import open_log
from mergekit_map.search.contrasts import stderrs_of_differences
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.study.running import run_study
from mergekit_map.study.study import Study
from mergekit_map.tasks.held_out import HeldOut

BEST = "best single model"
RIVALS = (BASE, BEST, SOUP)
EVALUATIONS = 20
NORMAL = 1.96


class Half(Documents):
    """Some documents of a family as if there were no others."""

    def __init__(self, study: Study, truth: Truth, ids: Sequence[int]):
        super().__init__(study, truth)
        self._ids = list(ids)

    def _all(self, merge: tuple[float, ...]) -> tuple[Array, Array | None]:
        values, margins = super()._all(merge)
        few = None if margins is None else margins[:, self._ids]
        return values[:, self._ids], few


def search(truth: Truth, seed: int, documents: str) -> list[dict[str, Any]]:
    """Search on one half; give the gains there and on the other, by task and rival."""
    study = study_of(truth, SearchSpec(seed=seed, evaluations=EVALUATIONS))
    size = truth.items(np.zeros((1, len(truth.bounds)))).shape[2]
    searched, rest = HeldOut(0.5, seed).divide("".join(truth.names), size)
    study = replace(study, documents=dict.fromkeys(study.tasks, documents))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_log(Path(folder) / "log") as log,
    ):
        evaluate = Half(study, truth, searched)
        result = run_study(study, evaluate, log, lambda _: None)
    chosen = study.vector(result.front[result.selected])
    labels = list(study.anchors)
    X = np.vstack([chosen, study.vectors(study.anchors.values())])
    items = truth.metric.sign * truth.items(X)  # (1 + anchors, m, D)
    found = []
    for column, task in enumerate(truth.names):
        singles = [i for i, label in enumerate(labels) if label not in {BASE, SOUP}]
        means = items[1:, column][:, searched].mean(axis=1)
        best = singles[int(np.argmax(means[singles]))]
        rivals = {BASE: labels.index(BASE), BEST: best, SOUP: labels.index(SOUP)}
        surrogate: Surrogate = result.surrogates[task]
        for name, row in rivals.items():
            pair = items[[0, 1 + row], column]
            if np.array_equal(X[0], X[1 + row]):
                continue
            promised, kept = (_difference(pair[:, ids]) for ids in (searched, rest))
            predicted = surrogate.predict(X[[0, 1 + row]]) * truth.metric.sign
            found.append(
                {
                    "task": task,
                    "rival": name,
                    "promised": promised,
                    "kept": kept,
                    "predicted": float(predicted[0] - predicted[1]),
                }
            )
    return found


def _difference(pair: Array) -> tuple[float, float]:
    """Give the mean difference of two merges (2, n), and its standard error."""
    influences = (pair - pair.mean(axis=1, keepdims=True)) / pair.shape[1]
    error = stderrs_of_differences(influences, np.zeros(pair.shape[1], np.int_))
    return float(pair[0].mean() - pair[1].mean()), float(error[0, 1])


def _run(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    found = search(_truth(folder, job["family"]), job["seed"], job["documents"])
    return {**job, "gains": found, "seconds": time.perf_counter() - started}


@functools.lru_cache(maxsize=1)
def _truth(folder: Path, name: str) -> Truth:
    return scene(folder, name)


def run(arguments: argparse.Namespace) -> None:
    """Do the searches that the record does not have yet."""
    path: Path = arguments.runs
    lines = path.read_text().splitlines() if path.exists() else []
    keys = ("family", "seed", "documents")
    known = {tuple(json.loads(line)[k] for k in keys) for line in lines}
    jobs: list[dict[str, Any]] = [
        {"family": family, "seed": seed, "documents": documents}
        for seed in range(arguments.seeds)
        for family in arguments.families
        for documents in arguments.documents
    ]
    missing = [job for job in jobs if tuple(job.values()) not in known]
    work = functools.partial(_run, arguments.folder)
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for outcome in pool.imap_unordered(work, missing):
            with path.open("a") as file:
                file.write(json.dumps(outcome) + "\n")
            print(*(outcome[key] for key in keys), f"{outcome['seconds']:.1f} s")
            sys.stdout.flush()


def table(arguments: argparse.Namespace) -> None:
    """Print what became of promises, in units of their own standard errors."""
    searches = [
        json.loads(line)
        for path in arguments.runs
        for line in path.read_text().splitlines()
    ]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for found in searches:
        for rival in (*RIVALS, "all three"):
            for family in (found["family"], "all"):
                groups[found["documents"], family, rival].append(found)
    rows = [
        [*key, *_row([_gains(found, key[2]) for found in of])]
        for key, of in sorted(groups.items())
    ]
    columns = ("documents", "family", "against", "searches", "gains", "promised")
    columns += ("kept less promised", "by the prediction", "covered")
    summary, _, meaning = str(__doc__).partition("\n\n")
    print(f"# {summary[:-1]}\n\n{meaning}")
    print("\n".join(markdown(columns, rows)))


def _gains(found: dict[str, Any], rival: str) -> list[dict[str, Any]]:
    return [g for g in found["gains"] if rival in {g["rival"], "all three"}]


def _row(searches: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """Average over the gains of each search, then over searches, which are apart."""
    z, predicted, size, covered = [], [], [], []
    for gains in filter(None, searches):
        kept, promised = (np.array([g[k] for g in gains]) for k in ("kept", "promised"))
        error = np.hypot(kept[:, 1], promised[:, 1])
        off = (kept[:, 0] - promised[:, 0]) / error
        foretold = np.array([g["predicted"] for g in gains])
        z.append(off.mean())
        predicted.append(((kept[:, 0] - foretold) / error).mean())
        size.append((promised[:, 0] / error).mean())
        covered.extend((np.abs(off) <= NORMAL).tolist())
    return [
        *(str(len(z)), str(len(covered)), f"{np.mean(size):.1f}"),
        *(_with_error(values) for values in (z, predicted)),
        f"{np.mean(covered):.3f}",
    ]


def _with_error(values: Sequence[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):+.2f} ± {error:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(call=run)
    command.add_argument("folder", type=Path)
    command.add_argument("runs", type=Path, help="a .jsonl file")
    command.add_argument("--families", nargs="+", default=FAMILIES)
    command.add_argument("--documents", nargs="+", default=["all", "auto"])
    command.add_argument("--seeds", type=int, default=8)
    command.add_argument("--processes", type=int, default=1)
    command = commands.add_parser("table")
    command.set_defaults(call=table)
    command.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
