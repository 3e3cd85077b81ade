"""Whether the ± of a difference holds between merges measured on the same items.

    python benchmarks/contest_differences.py FAMILIES

Questions are drawn at random from the 200 of a family whose merges are all known
(``contest_truth.py``), for all merges alike, as a benchmark draws them once; losses of
texts are made up: how hard a text is, which all merges share, and what each makes of
it. Counted is how often the difference that all items together have lies within 1.96
standard errors of that of the drawn ones, over all pairs of merges.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from contest_truth import Array, scene, unseen_merges

from mergekit_map.search.contrasts import stderrs_of_differences

SIZES = (20, 30, 50, 100, 200)  # items drawn
MERGES, DRAWS = 40, 200
SCENES = ("acc2_200", "acc3_200")
NORMAL_95 = 1.96


def covered(items: Array, n: int, rng: np.random.Generator) -> float:
    """Draw n of the items (merges, all) again and again; returns the share covered."""
    rows, columns = np.triu_indices(len(items), k=1)
    truth = np.subtract.outer(items.mean(axis=1), items.mean(axis=1))[rows, columns]
    shares = []
    for _ in range(DRAWS):
        drawn = items[:, rng.integers(items.shape[1], size=n)]
        means = drawn.mean(axis=1)
        influences = (drawn - means[:, None]) / n
        stderr = stderrs_of_differences(influences, np.zeros(n, np.int_))
        found = np.subtract.outer(means, means)[rows, columns]
        within = np.abs(found - truth) <= NORMAL_95 * stderr[rows, columns]
        shares.append(within.mean())
    return float(np.mean(shares))


def populations(
    families: Path, rng: np.random.Generator
) -> Iterator[tuple[str, Array]]:
    """Name what is drawn from: items of merges, (MERGES, all)."""
    for name in SCENES:
        truth = scene(families, name)
        X = rng.permutation(unseen_merges(truth.bounds))[:MERGES]
        items = truth.items(X)
        for column, task in enumerate(truth.names):
            yield f"{name} {task}", items[:, column]
    hardness = rng.lognormal(1.0, 0.6, size=2000)
    gains = rng.normal(1.0, 0.1, size=(MERGES, 1))
    yield "losses", gains * hardness + rng.normal(0, 0.1, size=(MERGES, 2000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", type=Path)
    families = parser.parse_args().families
    rng = np.random.default_rng(0)
    print("# Coverage of differences ± 1.96 standard errors\n")
    print(f"| items | {' | '.join(map(str, SIZES))} |")
    print(f"| {' | '.join(['---'] * (1 + len(SIZES)))} |")
    for name, items in populations(families, rng):
        cells = [f"{covered(items, n, rng):.3f}" for n in SIZES]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
