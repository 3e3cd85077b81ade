"""Whether metrics estimated from a part of the documents are right, and how well.

    python benchmarks/documents_unbiased.py FOLDER [--scenes NAMES]
        [--repetitions N] [--out results/documents_unbiased.md]

with the families of ``contest_families.py`` in FOLDER. In every repetition the anchors
are measured on all documents, then merges in a row on a part, each with all before it.

Notation: ``k`` merges, ``D`` documents; ``Y`` (k, D) what they say, ``margins`` (k, D).
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from contest_truth import Truth, anchor_merges

from mergekit_map.search.foresight import Seen, foresee
from mergekit_map.search.sampling import PartValue, chances, drawn, estimate

Array = np.ndarray[Any, np.dtype[np.float64]]

SHARES = (16, 8, 4)
IN_A_ROW = 10
# Family; whether its documents are blocks of all tasks, texts (the right answers of all
# tasks, of different lengths), answers of its first task, or 2,000 answers like those.
SCENES = {
    "32 blocks (n4)": ("n4", "blocks"),
    "400 texts (acc2)": ("acc2", "texts"),
    "200 answers (acc2)": ("acc2", "answers"),
    "200 answers (acc3)": ("acc3", "answers"),
    "2,000 answers (acc3)": ("acc3", "many"),
}


@dataclass(frozen=True)
class Documents:
    """A task whose documents are known at every merge."""

    truth: Truth
    kind: str

    def everywhere(self, U: Array) -> tuple[Array, Array | None, Array]:
        """Give values and margins (k, D) at U (k, d), and the weights (D,)."""
        X = U * self.truth.bounds[:, 1]
        items = self.truth.scores(X)
        if self.kind == "blocks":
            Y = items.reshape(len(X), -1)
            return Y, None, np.ones(Y.shape[1])
        rng = np.random.default_rng(0)
        if self.kind == "texts":
            Y = -items[..., 0].reshape(len(X), -1)
            return Y, None, rng.lognormal(sigma=0.5, size=Y.shape[1])
        margins = (items[..., 0] - items[..., 1:].max(axis=-1))[:, 0]
        if self.kind == "many":
            margins = _many(margins, U, rng)
        Y = (margins > 0).astype(np.float64)
        return Y, margins, np.ones(Y.shape[1])


def _many(margins: Array, U: Array, rng: np.random.Generator) -> Array:
    """Make 2,000 answers: resampled, moved and tilted by some of their spread."""
    like = margins[:, rng.integers(margins.shape[1], size=2000)]
    moved = rng.normal(size=2000) * 0.3 * margins.std()
    tilted = (U - 0.5) @ (rng.normal(size=(U.shape[1], 2000)) * 0.1 * margins.std())
    return np.asarray(like + moved + tilted)


@dataclass(frozen=True)
class Trial:
    """One merge measured on a part."""

    share: int
    adaptive: bool
    true: float
    found: PartValue
    plain: float  # estimates from a plain subset, alone
    anchors: float  # and with a regression on what the anchors said


@cache
def documents(folder: Path, scene: str) -> Documents:
    family, kind = SCENES[scene]
    return Documents(Truth(folder / f"{family}.npz"), kind)


def repetition(folder: Path, scene: str, seed: int) -> list[Trial]:
    """Search one random row of merges at every share, both ways."""
    task, rng = documents(folder, scene), np.random.default_rng(seed)
    d = len(task.truth.bounds)
    U = np.vstack([anchor_merges(d), rng.uniform(size=(IN_A_ROW, d))])
    Y, margins, weights = task.everywhere(U)
    return [
        trial
        for share in SHARES
        for adaptive in (False, True)
        for trial in _row(U, Y, margins, weights, share, rng, adaptive=adaptive)
    ]


def _row(
    U: Array,
    Y: Array,
    margins: Array | None,
    weights: Array,
    share: int,
    rng: np.random.Generator,
    *,
    adaptive: bool,
) -> list[Trial]:
    D, anchors, trials = Y.shape[1], U.shape[1] + 2, []
    seen: list[Seen] = []
    for i in range(len(U)):
        ids = np.arange(D)
        if i >= anchors:
            foreseen = foresee(U[i], seen, D)
            uniform = 0.25 if adaptive else 1.0
            pi = chances(D / share, weights, foreseen, uniform=uniform)
            ids = drawn(pi, rng.uniform(size=D))
            found = estimate(ids, Y[i, ids], pi, foreseen, weights)
            rivals = _rivals(Y[i], Y[:anchors], weights, share, rng)
            true = float(weights @ Y[i] / weights.sum())
            trials.append(Trial(share, adaptive, true, found, *rivals))
        of_these = None if margins is None else margins[i, ids]
        seen.append(Seen(U[i], ids, Y[i, ids], of_these))
    return trials


def _rivals(
    y: Array, anchors: Array, weights: Array, share: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Estimate from a plain subset, alone and with a ridge regression on anchors."""
    D = len(y)
    ids = rng.choice(D, size=max(round(D / share), 1), replace=False)
    plain = float(weights[ids] @ y[ids] / weights[ids].sum())
    A = np.vstack([np.ones(D), anchors]).T
    W, few = weights[ids][:, None], A[ids]
    penalty = np.eye(A.shape[1]) * 1e-2 * np.trace(few.T @ (W * few)) / A.shape[1]
    terms = np.linalg.solve(
        few.T @ (W * few) + penalty, few.T @ (weights[ids] * y[ids])
    )
    left = weights[ids] @ (y[ids] - few @ terms) / weights[ids].sum()
    return plain, float(weights @ (A @ terms) / weights.sum() + left)


def table(results: dict[str, list[Trial]]) -> str:
    """Write a row per scene, share and way to choose."""
    lines = [
        "| documents | asked | chosen | mean error / its noise | covered | error |"
        " plain subset | regression on anchors | worth of plain | of regression |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for scene, trials in results.items():
        for share in SHARES:
            for adaptive in (False, True):
                own = [t for t in trials if (t.share, t.adaptive) == (share, adaptive)]
                lines.append(_line(scene, share, own, adaptive=adaptive))
    return "\n".join(lines)


def _line(scene: str, share: int, trials: list[Trial], *, adaptive: bool) -> str:
    off = np.array([t.found.value - t.true for t in trials])
    stderr = np.array([t.found.stderr for t in trials])
    # Merges of a row share their history, rows do not.
    rows = off.reshape(-1, IN_A_ROW).mean(axis=1)
    bias = rows.mean() / (rows.std(ddof=1) / np.sqrt(len(rows)))
    covered = float((np.abs(off) <= 1.96 * stderr).mean())
    error = _root_mean_square(off)
    plain = _root_mean_square(np.array([t.plain - t.true for t in trials]))
    anchors = _root_mean_square(np.array([t.anchors - t.true for t in trials]))
    chosen = "adaptive" if adaptive else "plain"
    return (
        f"| {scene} | 1/{share} | {chosen} | {bias:+.2f} | {covered:.3f} |"
        f" {error:.4f} | {plain:.4f} | {anchors:.4f} |"
        f" {(plain / error) ** 2:.1f} | {(anchors / error) ** 2:.1f} |"
    )


def _root_mean_square(x: Array) -> float:
    return float(np.sqrt((x**2).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", nargs="*", default=list(SCENES))
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results: dict[str, list[Trial]] = {}
    with ProcessPoolExecutor(arguments.processes) as pool:
        for scene in arguments.scenes:
            one = partial(repetition, arguments.folder, scene)
            found = pool.map(one, range(arguments.repetitions), chunksize=5)
            results[scene] = [trial for trials in found for trial in trials]
            print(table({scene: results[scene]}), flush=True)
    if arguments.out:
        arguments.out.write_text(_HEAD + table(results) + "\n", encoding="utf-8")


_HEAD = """# Metrics from a part of the documents

`python benchmarks/documents_unbiased.py FOLDER`: 200 rows of 10 merges, after
anchors on all documents. *Covered* is how often the truth is within 1.96 standard
errors; *error* the root mean square; *worth* how many times the documents a plain
subset, or one with a regression on the anchors, would take for the same error.

"""


if __name__ == "__main__":
    main()
