"""Whether metrics estimated from a subset of the documents are right, and how well.

    python benchmarks/documents_unbiased.py FOLDER [--repetitions N]
        [--out results/documents_unbiased.md]

with the families of ``contest_families.py`` in FOLDER. In every repetition the
documents of a task are drawn from those of the family, with replacement, so that the
values of all that were drawn and of the population are both known. The anchors are
measured on all, merges in a row on a subset of theirs.

Notation: ``k`` merges, ``D`` documents; ``Y`` (k, D) their scores.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from contest_truth import Array, Truth, anchor_merges, scene
from records import markdown

from mergekit_map.search.subsampling import draw_subset
from mergekit_map.types import Answers, Measurement

COUNTS = (8, 16, 32, 64)
IN_A_ROW = 10
# Family; what its documents are: blocks of its first task; texts, the losses of right
# answers with weights of their own; or answers, right or wrong.
SCENES = {
    "128 blocks (docs2)": ("docs2", "blocks"),
    "200 texts (acc2)": ("acc2_200", "texts"),
    "200 answers (acc2)": ("acc2_200", "answers"),
}
COLUMNS = (
    *("documents", "measured", "mean error / its noise", "in standard errors"),
    *("covered", "population covered", "error", "plain subset", "worth of plain"),
)


class Trial(NamedTuple):
    """One merge, measured on a subset."""

    count: int
    error: float  # to the value on all documents
    sampling: float  # the standard error of that
    beyond: float  # to the value of the population
    stderr: float
    plain: float  # error of the plain mean of the subset


def scores(truth: Truth, kind: str, X: Array) -> tuple[Array, Array]:
    """Return the scores (k, D) of the first task at X (k, d), and the weights (D,)."""
    if kind == "texts":
        Y = -truth.scores(X)[:, 0, :, 0]
        return Y, np.random.default_rng(0).lognormal(sigma=0.5, size=Y.shape[1])
    Y = truth.items(X)[:, 0]
    return Y, np.ones(Y.shape[1])


def repetition(truth: Truth, kind: str, seed: int) -> list[Trial]:
    """Measure one random row of merges with every count."""
    rng = np.random.default_rng(seed)
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
            trial = Trial(
                count,
                found.value - everything[i],
                found.sampling or 0.0,
                found.value - population[i],
                found.stderr or 0.0,
                plain - everything[i],
            )
            trials.append(trial)
    return trials


def table(results: dict[str, list[Trial]]) -> str:
    """Write a row per scene and count."""
    rows = [
        _row(name, count, [t for t in trials if t.count == count])
        for name, trials in results.items()
        for count in COUNTS
    ]
    return "\n".join(markdown(COLUMNS, rows))


def _row(name: str, count: int, trials: list[Trial]) -> list[str]:
    _, error, sampling, beyond, stderr, plain = np.array(trials).T
    # Merges of a row share their subset, rows do not.
    rows = error.reshape(-1, IN_A_ROW).mean(axis=1)
    noise = rows.mean() / (rows.std(ddof=1) / np.sqrt(len(rows)))
    size, of_plain = (float(np.sqrt((x**2).mean())) for x in (error, plain))
    return [
        *(name, str(count), f"{noise:+.2f}", f"{error.mean() / size:+.3f}"),
        f"{(np.abs(error) <= 1.96 * sampling).mean():.3f}",
        f"{(np.abs(beyond) <= 1.96 * stderr).mean():.3f}",
        *(f"{size:.4f}", f"{of_plain:.4f}", f"{(of_plain / size) ** 2:.1f}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repetitions", type=int, default=800)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results: dict[str, list[Trial]] = {}
    for name, (family, kind) in SCENES.items():
        truth = scene(arguments.folder, family)
        rows = (repetition(truth, kind, seed) for seed in range(arguments.repetitions))
        results[name] = [trial for row in rows for trial in row]
        print(table({name: results[name]}), flush=True)
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
