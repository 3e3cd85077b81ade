"""Table 4 once more, on texts and images that no method has seen.

What a method gives a preference was chosen by measurements, and table 4 counts these
same ones: of many merges it prefers the lucky. Here the merges that were chosen are
measured on others: the second half of each text, or images that are drawn anew.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from experiments.kept import Result
from experiments.preferences import ahead
from experiments.runs import Runs, Unfit
from experiments.searched import Compared
from experiments.win_rates import known
from laboratory.measuring import measure

from mergekit_map.compare.scores import Sums, best_merges, weighted_sums
from mergekit_map.compare.tables import Cell, Column, Spread, Table
from mergekit_map.files import write_atomically, write_json
from mergekit_map.search.arrays import FloatArray

IMAGES = 2000  # of each task
TOKENS = 1024  # of each text, at most
_OURS = "MAP, default"
_NAMES = {"random": "Direct search", "moead": "MOEA/D"}
_CAPTION = (
    "How much more a default search gives a preference than others that measure many "
    "merges: mean of the differences over 20 preferences ± its standard error, in the "
    "units of table 4. *Seen*: as in table 4, by what each method itself measured (of "
    "its front, for MAP). *Fresh*: the same merges, {what}."
)


def fresh(runs: Runs) -> Result:
    """Hold what methods gave the preferences against items that they did not see."""
    if runs.kind not in ("loss", "images"):
        raise Unfit(f"there are no fresh items of kind {runs.kind}")
    rows = [row for n in runs.sizes for row in _rows(runs, n)]
    ahead_of = {
        seen: sum(_mean(row[column]) > 0 for row in rows)
        for seen, column in (("seen", 2), ("fresh", 3))
    }
    images = runs.kind == "images"
    what = (
        f"on {IMAGES} images of each task that were drawn anew"
        if images
        else f"on {TOKENS} tokens of the other half of each text"
    )
    how = {"digits": 2, "percent": True} if images else {"digits": 4}
    return Result(
        title="Fresh: the merges of table 4 on items that nobody saw",
        headline=(
            f"A default search is ahead in {ahead_of['seen']} of {len(rows)} "
            f"comparisons by what was measured to search, in {ahead_of['fresh']} "
            f"{what} (not in the paper)."
        ),
        tables=[
            Table(
                name="fresh",
                title="How far MAP is ahead",
                caption=_CAPTION.format(what=what),
                columns=[
                    *map(Column, ("N", "ahead of")),
                    Column("seen", **how),
                    Column("fresh", **how),
                ],
                rows=rows,
            )
        ],
    )


def _mean(cell: Cell) -> float:
    assert isinstance(cell, Spread)
    return cell.mean


def _rows(runs: Runs, n: int) -> list[list[Cell]]:
    models = runs.models[:n]
    compared = runs.compare(runs.plain(models), runs.direct(n))
    chosen = _chosen(compared)
    X = np.unique(np.vstack([X for X, _ in chosen.values()]), axis=0)
    measured = _measured(runs, models, X) * _signs(compared)
    values = {tuple(x): row for x, row in zip(X.tolist(), measured, strict=True)}
    sums = {
        name: tuple(
            weighted_sums(Y, compared.preferences, compared.scale)
            for Y in (seen, np.array([values[tuple(x)] for x in X.tolist()]))
        )
        for name, (X, seen) in chosen.items()
    }
    ours: tuple[Sums, ...] = sums.pop(_OURS)
    return [
        [n, name, *(ahead(mine, theirs) for mine, theirs in zip(ours, of, strict=True))]
        for name, of in sums.items()
    ]


def _signs(compared: Compared) -> FloatArray:
    return np.array([metric.sign for metric in compared.metrics.values()], np.float64)


def _chosen(compared: Compared) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Give what each preference gets: merges (P, d), and what was measured (P, m)."""
    terms = compared.preferences, compared.scale
    assessed = compared.assessed()
    shown = compared.study.vectors(compared.shown)
    foretold = np.where(np.isnan(assessed.measured), np.nan, assessed.predicted)
    rows = best_merges(foretold, *terms)
    found = {_OURS: (shown[rows], assessed.measured[rows])}
    own = compared.study.vectors(compared.own_merges)
    of = {"MAP, own merges": (own, compared.own)}
    for name, label in _NAMES.items():
        rival = compared.contest.rivals[name]
        of[label] = (rival.X, rival.Y)
    for name, (X, Y) in of.items():
        rows = best_merges(known(Y), *terms)
        whole = X[~np.isnan(Y).any(axis=1)]
        found[name] = (whole[rows], known(Y)[rows])
    return found


def _measured(runs: Runs, models: Sequence[str], X: FloatArray) -> FloatArray:
    """Measure merges on fresh items, unless that was done; (n, m), in tasks' units."""
    folder = runs.folder / "fresh"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{runs.name_of(models)}.json"
    done = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    missing = [x for x in X.tolist() if str(x) not in done]
    if missing:
        began = time.monotonic()
        values = measure(_content(runs, models, folder), np.array(missing)).tolist()
        done |= dict(zip(map(str, missing), values, strict=True))
        write_json(path, done)
        runs.spent.append(time.monotonic() - began)
        print(f"{runs.spent[-1]:6.0f} s  {len(missing)} merges on fresh items")
    return np.array([done[str(x)] for x in X.tolist()], np.float64)


def _content(runs: Runs, models: Sequence[str], folder: Path) -> dict[str, Any]:
    """Give the configuration of some models, its tasks with fresh items."""
    content = runs.content(models)
    tasks = content["map"]["tasks"]
    for name, task in tasks.items():
        anew = _other_text if "perplexity" in task else _other_images
        tasks[name] = anew(runs, task, folder)
    return content


def _other_text(_: Runs, task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Keep the second half of a text: of its documents, where it has some."""
    source = Path(task["perplexity"]["file"])
    text = source.read_text(encoding="utf-8")
    parts = text.splitlines(keepends=True) if source.suffix == ".jsonl" else [*text]
    write_atomically(folder / source.name, "".join(parts[len(parts) // 2 :]))
    other = {**task["perplexity"], "file": str(folder / source.name)}
    return {**task, "perplexity": other, "max_tokens": TOKENS}


def _other_images(runs: Runs, task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Draw the held-out images of a task anew, beside a copy of what measures."""
    # It brings scikit-learn, for the digits.
    from safetensors.torch import load_file, save_file
    from vision_images import draw_images

    module, name = task["python"].split(":")
    (folder / "images").mkdir(exist_ok=True)
    shutil.copy(runs.family.folder / f"{module}.py", folder / f"fresh_{module}.py")
    path = Path("images") / f"{name}.safetensors"
    if not (folder / path).exists():
        anew = draw_images(name, IMAGES, held_out=True, again=True)
        tensors = load_file(runs.family.folder / path)
        tensors |= {"pixels": anew.pixels, "labels": anew.labels}
        save_file(tensors, folder / path)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return {**task, "python": f"fresh_{module}:{name}"}
