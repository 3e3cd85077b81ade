"""What others make of a merge that is measured on a part of the documents.

    python benchmarks/documents_rivals.py FAMILIES OUT.md
    python benchmarks/documents_rivals.py --check

Each estimates a merge's mean over all ``D`` documents from its values on ``n`` of
them and from the ``M`` merges that are measured on all, the anchors: base, every
single model, uniform soup. The documents are the same for all merges.

- *plain mean* of documents drawn at random.
- *anchor points*, Maia Polo et al., "tinyBenchmarks: evaluating LLMs with fewer
  examples" (ICML 2024): k-means on the documents, described by the earlier values or by
  the parameters of item response theory; of each cluster the document nearest to its
  centre, weighted by the cluster's share.
- *p-IRT* (same paper): the merge's ability from its n documents, with which the model
  of the items fills in the others. *gp-IRT* mixes that with the anchor points:
  share b² / (b² + s² / 4n) of the latter, s² the variance of documents and b the error
  of the filling-in, here over the earlier merges, by cross-validation.
- *mp-IRT* and *gmp-IRT*, Mencattini et al., "MERGE3: efficient evolutionary merging on
  consumer-grade GPUs" (ICML 2025), on documents drawn at random: the same, but the
  ability is a linear combination of the parents' (base and singles), and the mixture is
  half and half.

The model of items (``documents_items.py``) has as many dimensions as there are singles.
A new ability they estimate by maximum likelihood, which a handful of right answers
sends to infinity; ours has the prior, which is kinder. The combination's has a unit
normal around equal shares. Losses have no place there (scores between 0 and 1 they cut
at a threshold): for those the same estimators have a linear model with normal noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from contest_truth import ACCURACY, Truth, anchor_merges, unseen_merges
from documents_items import Array, Indices, Items, fit_items
from scipy.special import expit

from mergekit_map.compare.budget import sobol_points

SHARES = (16, 8, 4)  # of the documents, one in so many
MERGES = 20
REPETITIONS = 20
_FEWEST_DOCUMENTS = 64  # for a family to be in the table
_FOLDS = 5  # of the earlier merges, each left out in turn
_TRIALS = 5  # of k-means, as theirs
_SWEEPS = 50  # of k-means, at most
_JITTER = 1e-3  # of the spread; tells documents apart that all models answer alike


Share = Callable[[int], float]  # of the anchor points in gp-IRT, by n


@dataclass(frozen=True)
class Chosen:
    """The documents a merge is measured on, and what each counts in a mean."""

    documents: Indices  # (n,)
    weights: Array  # (n,), sum 1

    def mean(self, values: Array) -> float:
        """Average the values (n,) by weight."""
        return float(self.weights @ values)


def at_random(D: int, n: int, rng: np.random.Generator) -> Chosen:
    """Draw documents without replacement, all alike."""
    return Chosen(rng.choice(D, n, replace=False), np.full(n, 1 / n))


def anchor_points(described: Array, n: int, rng: np.random.Generator) -> Chosen:
    """Take the middles of n clusters of the documents, described as (D, k)."""
    scale = described.std() or 1.0
    X = described + _JITTER * scale * rng.standard_normal(described.shape)
    trials = [_k_means(X, n, rng) for _ in range(_TRIALS)]
    centres, labels, _ = min(trials, key=lambda trial: trial[2])
    distances = _squared_distances(X, centres)
    distances[labels[:, None] != np.arange(n)] = np.inf
    shares = np.bincount(labels, minlength=n) / len(X)
    return Chosen(distances.argmin(axis=0), shares)


def filled_in(items: Items, chosen: Chosen, values: Array, ability: Array) -> float:
    """Average what was measured, and what is expected of the other documents."""
    share = len(values) / len(items.offsets)
    others = np.delete(items.expected(ability), chosen.documents)
    unseen = others.mean() if len(others) else 0.0
    return float(share * values.mean() + (1 - share) * unseen)


def share_of_anchor_points(earlier: Array, dimensions: int, binary: bool) -> Share:
    """Give a function of n: how much the anchor points count in gp-IRT."""
    measured, missing = np.arange(earlier.shape[1]) % 2 == 0, slice(1, None, 2)
    errors = []
    for fold in range(min(len(earlier), _FOLDS)):
        left_out = np.arange(len(earlier)) % _FOLDS == fold
        items = fit_items(earlier[~left_out], dimensions, binary)
        for values in earlier[left_out]:
            ability = _own_ability(items, np.flatnonzero(measured), values[measured])
            expected = items.expected(ability)[missing].mean()
            errors.append(abs(expected - values[missing].mean()))
    squared_bias, variance = np.mean(errors) ** 2, earlier.var(axis=1).mean()
    return lambda n: squared_bias / (squared_bias + variance / (4 * n))


@dataclass(frozen=True)
class Rivals:
    """All rivals on one task, fitted to its earlier merges."""

    earlier: Array  # (M, D); base, singles, and others
    items: Items
    parents: int  # that many of the first merges
    share: Share

    @classmethod
    def fit(cls, earlier: Array, parents: int, binary: bool) -> Rivals:
        """Fit the model of the documents, with a dimension per single model."""
        dimensions = parents - 1
        share = share_of_anchor_points(earlier, dimensions, binary)
        return cls(earlier, fit_items(earlier, dimensions, binary), parents, share)

    def estimates(
        self, merges: Array, n: int, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Estimate the means of merges (k, D), of which n documents are looked at."""
        drawn = at_random(merges.shape[1], n, rng)
        by_values = anchor_points(self.earlier.T, n, rng)
        by_items = anchor_points(self.items.embedding(), n, rng)
        rows = [self._estimates(merge, drawn, by_values, by_items) for merge in merges]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def _estimates(
        self, merge: Array, drawn: Chosen, by_values: Chosen, by_items: Chosen
    ) -> dict[str, float]:
        items, values = self.items, merge[by_items.documents]
        own = _own_ability(items, by_items.documents, values)
        filled, share = filled_in(items, by_items, values, own), self.share(len(values))
        random = merge[drawn.documents]
        basis = items.abilities[: self.parents]
        centre = np.full(self.parents, 1 / self.parents)
        combined = items.ability(drawn.documents, random, basis, centre)
        merged = filled_in(items, drawn, random, combined)
        return {
            "plain mean": drawn.mean(random),
            "anchor points, values": by_values.mean(merge[by_values.documents]),
            "anchor points, IRT": by_items.mean(values),
            "p-IRT": filled,
            "gp-IRT": share * by_items.mean(values) + (1 - share) * filled,
            "mp-IRT": merged,
            "gmp-IRT": (drawn.mean(random) + merged) / 2,
        }


def _own_ability(items: Items, documents: Indices, values: Array) -> Array:
    k = items.loadings.shape[1]
    return items.ability(documents, values, np.eye(k), np.zeros(k))


def _k_means(
    X: Array, n: int, rng: np.random.Generator
) -> tuple[Array, Indices, float]:
    """Give the centres (n, k), each row's cluster, and the sum of squared distances."""
    centres = X[[rng.integers(len(X))]]
    while len(centres) < n:  # as k-means++
        nearest = _squared_distances(X, centres).min(axis=1)
        drawn = rng.choice(len(X), p=nearest / nearest.sum())
        centres = np.vstack([centres, X[drawn]])
    labels = _squared_distances(X, centres).argmin(axis=1)
    for _ in range(_SWEEPS):
        counts = np.bincount(labels, minlength=n)[:, None]
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, X)
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
        before, labels = labels, _squared_distances(X, centres).argmin(axis=1)
        if (before == labels).all():
            break
    return centres, labels, float(_squared_distances(X, centres).min(axis=1).sum())


def _squared_distances(X: Array, centres: Array) -> Array:
    """Measure rows against centres, (rows, centres)."""
    difference = X[:, None, :] - centres
    return np.asarray((difference**2).sum(axis=2))


def errors(truth: Truth) -> dict[str, Array]:
    """Measure all rivals on a family: rmse over its range, (tasks, shares)."""
    rng = np.random.default_rng(0)
    d = len(truth.bounds)
    anchors = truth.items(anchor_merges(d))
    designed = sobol_points(d, MERGES, rng) * truth.bounds[:, 1]
    merges = truth.items(designed)
    spans = np.ptp(truth.predict(unseen_merges(truth.bounds)), axis=0)
    D = merges.shape[2]
    found: dict[str, list[list[float]]] = {}
    for task, span in enumerate(spans):
        rivals = Rivals.fit(anchors[:, task], d + 1, truth.metric is ACCURACY)
        true = merges[:, task].mean(axis=1)
        for share in SHARES:
            drawn = [
                rivals.estimates(merges[:, task], D // share, rng)
                for _ in range(REPETITIONS)
            ]
            for name in drawn[0]:
                missed = np.array([estimates[name] - true for estimates in drawn])
                rows = found.setdefault(name, [[] for _ in spans])
                rows[task].append(float(np.sqrt((missed**2).mean()) / span))
    return {name: np.array(rows) for name, rows in found.items()}


def table(families: Path) -> str:
    """Write the errors of all rivals on all families that have enough documents."""
    lines = [
        "Error (rmse, % of the value's range over the box) of a merge's mean over all "
        f"D documents, from D/{SHARES[0]}, D/{SHARES[1]} and D/{SHARES[2]} of them; "
        f"{MERGES} Sobol merges, {REPETITIONS} repetitions, anchors measured in full.",
        "",
    ]
    for path in sorted(families.glob("*.npz")):
        truth = Truth(path)
        D = truth.items(truth.bounds[None, :, 0]).shape[2]
        if D < _FEWEST_DOCUMENTS:
            continue
        found = errors(truth)
        lines += [f"| {path.stem}, D = {D} | {' | '.join(truth.names)} |"]
        lines += ["| --- |" + " --- |" * len(truth.names)]
        for name, rows in found.items():
            cells = [" / ".join(f"{100 * error:.1f}" for error in row) for row in rows]
            lines += [f"| {name} | {' | '.join(cells)} |"]
        lines += [""]
    return "\n".join(lines)


def check() -> None:
    """See that every rival is good where its own model holds, or stop."""
    rng = np.random.default_rng(0)
    D, n, weights = 400, 50, rng.dirichlet(np.ones(3), 30)
    abilities = np.vstack([[[-2, -2], [2, -1], [-1, 2]], rng.normal(size=(37, 2))])
    new = weights @ abilities[:3]
    loadings, offsets = rng.normal(4, 2, (2, D)), rng.normal(0, 6, D)
    for binary in (True, False):
        linear = [group @ loadings + offsets for group in (abilities, new)]
        draws = [
            (rng.random(z.shape) < expit(z)).astype(float)
            if binary
            else z + 0.1 * rng.standard_normal(z.shape)
            for z in linear
        ]
        rivals = Rivals.fit(draws[0], 3, binary)
        true = draws[1].mean(axis=1)
        tries = [rivals.estimates(draws[1], n, rng) for _ in range(10)]
        missed = {
            name: float(np.sqrt(np.mean([(e[name] - true) ** 2 for e in tries])))
            for name in tries[0]
        }
        print(
            "2PL" if binary else "linear", {k: round(v, 4) for k, v in missed.items()}
        )
        plain = missed.pop("plain mean")
        limit = 0.8 * plain
        poor = {name for name, error in missed.items() if error > limit}
        if poor:
            raise SystemExit(f"{poor} must be within {limit:.4f} in their own model")
        for name, estimates in rivals.estimates(draws[1], D, rng).items():
            if not np.allclose(estimates, true):
                raise SystemExit(f"{name} of all documents must be their mean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("families", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    arguments = parser.parse_args()
    if arguments.check:
        check()
    if arguments.out is not None:
        text = table(arguments.families)
        arguments.out.write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
