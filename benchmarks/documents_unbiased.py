"""Whether metrics estimated from a subset of the documents are right, and how well.

    python benchmarks/documents_unbiased.py FOLDER [--scenes NAMES]
        [--repetitions N] [--out results/documents_unbiased.md]

with the families of ``contest_families.py`` in FOLDER. In every repetition the
documents of a task are drawn from those of the family, with replacement, so that the
values of all that were drawn and of the population are both known. The anchors are
measured on all, merges in a row on a subset of theirs.

Notation: ``k`` merges, ``D`` documents; ``Y`` (k, D) their scores.
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

from mergekit_map.search.subsampling import draw_subset
from mergekit_map.types import Answers, Measurement

Array = np.ndarray[Any, np.dtype[np.float64]]

COUNTS = (8, 16, 32, 64)
IN_A_ROW = 10
# Family; what its documents are: blocks of its first task; texts, the losses of right
# answers with weights of their own; or answers, right or wrong.
SCENES = {
    "128 blocks (docs2)": ("docs2", "blocks"),
    "200 texts (acc2)": ("acc2", "texts"),
    "200 answers (acc2)": ("acc2", "answers"),
}


@dataclass(frozen=True)
class Trial:
    """One merge, measured on a subset."""

    count: int
    error: float  # to the value on all documents
    sampling: float  # the standard error of that
    beyond: float  # to the value of the population
    stderr: float
    plain: float  # error of the plain mean of the subset


@cache
def truth_of(folder: Path, family: str) -> Truth:
    """Read a family once in each process."""
    return Truth(folder / f"{family}.npz")


def scores(truth: Truth, kind: str, X: Array) -> tuple[Array, Array]:
    """Return the scores (k, D) of the first task at X (k, d), and the weights (D,)."""
    if kind == "texts":
        Y = -truth.scores(X)[:, 0, :, 0]
        return Y, np.random.default_rng(0).lognormal(sigma=0.5, size=Y.shape[1])
    Y = truth.items(X)[:, 0]
    return Y, np.ones(Y.shape[1])


def repetition(folder: Path, scene: str, seed: int) -> list[Trial]:
    """Measure one random row of merges with every count."""
    family, kind = SCENES[scene]
    truth, rng = truth_of(folder, family), np.random.default_rng(seed)
    d = len(truth.bounds)
    U = np.vstack([anchor_merges(d), rng.uniform(size=(IN_A_ROW, d))])
    Y, w = scores(truth, kind, U * truth.bounds[:, 1])
    drawn = rng.integers(Y.shape[1], size=Y.shape[1])
    population = Y @ w / w.sum()
    Y, w = Y[:, drawn], w[drawn]
    everything, places = Y @ w / w.sum(), tuple(range(len(w)))
    references = [Answers(places, tuple(y), tuple(w)) for y in Y[: d + 2]]
    ends = (0.0, 1.0) if kind == "answers" else (-np.inf, np.inf)
    trials = []
    for count in COUNTS:
        subset = draw_subset(count, references, rng)
        assert subset is not None
        some = list(subset.ids)
        for i in range(d + 2, len(U)):
            answers = Answers(subset.ids, tuple(Y[i, some]), tuple(w[some]))
            plain = float(w[some] @ Y[i, some] / w[some].sum())
            found = subset.estimate(
                Measurement(plain, None, count, answers=answers), ends
            )
            trials.append(
                Trial(
                    count,
                    found.value - everything[i],
                    found.sampling or 0.0,
                    found.value - population[i],
                    found.stderr or 0.0,
                    plain - everything[i],
                )
            )
    return trials


def table(results: dict[str, list[Trial]]) -> str:
    """Write a row per scene and count."""
    lines = [
        "| documents | measured | mean error / its noise | in standard errors |"
        " covered | population covered | error | plain subset | worth of plain |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for scene, trials in results.items():
        for count in COUNTS:
            lines.append(_line(scene, [t for t in trials if t.count == count]))
    return "\n".join(lines)


def _line(scene: str, trials: list[Trial]) -> str:
    error, sampling, beyond, stderr, plain = (
        np.array([getattr(t, name) for t in trials])
        for name in ("error", "sampling", "beyond", "stderr", "plain")
    )
    # Merges of a row share their subset, rows do not.
    rows = error.reshape(-1, IN_A_ROW).mean(axis=1)
    noise = rows.mean() / (rows.std(ddof=1) / np.sqrt(len(rows)))
    size, of_plain = (float(np.sqrt((x**2).mean())) for x in (error, plain))
    return (
        f"| {scene} | {trials[0].count} | {noise:+.2f} | {error.mean() / size:+.3f} |"
        f" {(np.abs(error) <= 1.96 * sampling).mean():.3f} |"
        f" {(np.abs(beyond) <= 1.96 * stderr).mean():.3f} |"
        f" {size:.4f} | {of_plain:.4f} | {(of_plain / size) ** 2:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", nargs="*", default=list(SCENES))
    parser.add_argument("--repetitions", type=int, default=800)
    parser.add_argument("--processes", type=int, default=1)
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
        text = _HEAD.format(out=arguments.out) + table(results)
        arguments.out.write_text(text + "\n", encoding="utf-8")


_HEAD = """# Metrics from a subset of the documents

    python benchmarks/contest_families.py FAMILIES docs2 acc2
    python benchmarks/documents_unbiased.py FAMILIES --out {out}

800 rows of 10 merges, each row on documents and a subset of its own. *Mean error*: of
the value on all documents, in units of its own noise, and of the root mean square
error. *Covered* is how often the value on all documents is within 1.96 `sampling`;
*population covered*, how often the value of the population that the documents were
drawn from is within 1.96 `stderr`. *Error* is the root mean square; *worth*, how many
times the documents a plain subset would take for the same error.

"""


if __name__ == "__main__":
    main()
