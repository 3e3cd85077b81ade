"""Whether ± means what it says: how often the truth is within 1.96 standard errors.

    python benchmarks/contest_coverage.py run FAMILIES RUNS
    python benchmarks/contest_coverage.py table RUNS > .../results/coverage.md

Fits every kind of surrogate with every link to merges of a plain design (anchors and
Sobol points), and predicts unseen ones: of families whose true values are known
(``contest_truth.py``), and of functions that no quadratic fits behind any link. Noise
is ``none`` (standard errors unknown), ``iid`` (5 % of the range, and known), or
``shared``: exact values, with the standard errors that the same documents give to all
merges alike. What is to be covered is the value without noise.
"""

from __future__ import annotations

import itertools
import multiprocessing
import warnings
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from contest_truth import (
    ACCURACY,
    SCENES,
    Array,
    Truth,
    plain_design,
    scene,
    unseen_merges,
)
from records import append, markdown, parsers, read

from mergekit_map.compare.opponents import draw_seed
from mergekit_map.errors import DesignError
from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.quadratic import Link

KINDS = ("quadratic", "regularized", "residual_gp", "auto")
SIZES = (8, 12, 20, 30, 60, 120)
DIMENSIONS = (2, 3, 4, 7)
LINKS = {
    "identity": Link(),
    "sigmoid": Link(0.0, 1.0),
    "softplus": Link(lower=0.0),
    "mirror": Link(upper=0.0),
}
NOISES = ("none", "iid", "shared")
NOISE = 0.05  # share of the range
NORMAL_95 = 1.96
GOOD = (0.90, 0.99)
HEAD = f"""\
# Coverage of predicted ± 1.96 standard errors

    python benchmarks/contest_coverage.py run FAMILIES RUNS --seeds 2
    python benchmarks/contest_coverage.py table RUNS

Means over functions, tasks and seeds; in brackets the lowest tenth; what is
not between {GOOD[0]} and {GOOD[1]} in italics. Without rows of shared noise, FAMILIES
was an empty folder, and these are four functions alone.
"""


@dataclass(frozen=True)
class Case:
    """A function of the coefficients, and how it is observed."""

    name: str
    link: str
    bounds: Array  # (d, 2)
    value: Callable[[Array], Array]  # (k, d) -> (k,)
    stderr: Callable[[Array], Array] | None = None  # that documents give


def cases(families: Path, d: int) -> Iterator[Case]:
    """List what is fitted in d coefficients."""
    box = np.tile([0.0, 1.0], (d, 1))
    for (name, f), link in itertools.product(_FUNCTIONS.items(), LINKS):
        yield Case(name, link, box, partial(_behind, link, f))
    for name in [name for name, models in SCENES.items() if models == d]:
        try:
            truth = scene(families, name)
        except FileNotFoundError:
            continue
        links = ["identity", "softplus", "mirror"]
        if truth.metric is ACCURACY:
            links = ["identity", "sigmoid"]
        for (column, task), link in itertools.product(enumerate(truth.names), links):
            value = partial(_predicted, truth, column, -1 if link == "mirror" else 1)
            stderr = partial(_stderr, truth, column)
            yield Case(f"{name} {task}", link, truth.bounds, value, stderr)


def _behind(link: str, f: Callable[[Array], Array], X: Array) -> Array:
    return LINKS[link].apply(_SHIFT[link] + f(X))


def _predicted(truth: Truth, column: int, sign: int, X: Array) -> Array:
    return np.asarray(sign * truth.predict(X)[:, column])


def _stderr(truth: Truth, column: int, X: Array) -> Array:
    return np.asarray(truth.stderr(X)[:, column])


def fits(case: Case, seeds: int) -> list[dict[str, Any]]:
    """Fit, and count how many of the unseen merges are covered."""
    warnings.simplefilter("ignore")
    unseen, link, found = unseen_merges(case.bounds), LINKS[case.link], []
    Y = case.value(unseen)
    for n, noise, seed in itertools.product(SIZES, NOISES, range(seeds)):
        # Of its own, as what one draw has in it is not to be taken for what is usual.
        rng = np.random.default_rng([seed, n, *f"{case.name} {case.link}".encode()])
        X = plain_design(case.bounds, n, draw_seed(rng))
        y, stderr = case.value(X), None
        if noise == "iid":
            stderr = np.full(n, NOISE * np.ptp(Y))
            y = np.clip(y + rng.normal(scale=stderr), link.lower, link.upper)
        elif noise == "shared":
            if case.stderr is None:
                continue
            stderr = case.stderr(X)
        key = {"case": case.name, "link": case.link, "d": len(case.bounds), "n": n}
        for kind in KINDS:
            covered = _covered(case, kind, (X, y, stderr), (unseen, Y))
            if covered is not None:
                key |= {"noise": noise, "seed": seed, "kind": kind}
                found.append({**key, "covered": covered})
    return found


def _covered(
    case: Case,
    kind: Any,
    seen: tuple[Array, Array, Array | None],
    unseen: tuple[Array, Array],
) -> float | None:
    """Fit once; None where there are too few merges for this kind."""
    X, y, stderr = seen
    try:
        fitted = fit_surrogate(
            X, y, stderr=stderr, link=LINKS[case.link], bounds=case.bounds, kind=kind
        )
    except DesignError:
        return None
    points, Y = unseen
    misses = np.abs(Y - fitted.predict(points))
    within = misses <= NORMAL_95 * fitted.stderr(points)  # False where that is NaN
    return float(within.mean())


def _wave(X: Array) -> Array:
    directions = 1 / np.arange(1, X.shape[1] + 1)
    return np.asarray(np.sin(3 * X @ directions) + X[:, 0] - X[:, 1] ** 2)


def _bend(X: Array) -> Array:
    """Rise to a plateau, as a task does that one model knows and others forget."""
    return np.asarray(2 * np.tanh(3 * X[:, 0] - 2 * X[:, 1:].mean(axis=1)) - X[:, -1])


def _steep(X: Array) -> Array:
    """Grow ever faster with the length of the merge, as losses do."""
    return np.asarray(np.expm1(1.5 * np.linalg.norm(X - 0.3, axis=1)) - X[:, 0])


def _bump(X: Array) -> Array:
    return np.asarray(3 * np.exp(-4 * ((X - 0.6) ** 2).sum(axis=1)) - X.sum(axis=1))


_FUNCTIONS = {"wave": _wave, "bend": _bend, "steep": _steep, "bump": _bump}
# Near the bend of the link, so that it matters.
_SHIFT = {"identity": 0.0, "sigmoid": 0.0, "softplus": 0.5, "mirror": -0.5}


def run(arguments: Namespace) -> None:
    """Fit all there is, case by case."""
    arguments.runs.unlink(missing_ok=True)  # a part of it would count twice
    found = (cases(arguments.folder, d) for d in DIMENSIONS)
    work = partial(fits, seeds=arguments.seeds)
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for lines in pool.imap_unordered(work, itertools.chain.from_iterable(found)):
            append(arguments.runs, *lines)


def table(runs: Path) -> str:
    """Write Markdown: coverage by kind, link, noise and dimension, along n."""
    groups: dict[Any, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for fit in read(runs):
        key = tuple(fit[k] for k in ("kind", "link", "noise", "d"))
        groups[key][fit["n"]].append(fit["covered"])
    rows = [
        [*map(str, key), *(_cell(found[n]) if found[n] else "" for n in SIZES)]
        for key, found in sorted(groups.items())
    ]
    columns = ("surrogate", "link", "noise", "N", *map(str, SIZES))
    return "\n".join([HEAD, *markdown(columns, rows)])


def _cell(covered: Sequence[float]) -> str:
    mean = np.mean(covered)
    text = f"{mean:.2f} ({np.quantile(covered, 0.1):.2f})"
    return text if GOOD[0] <= mean <= GOOD[1] else f"*{text}*"


def main() -> None:
    parser, running, reading = parsers(
        __doc__, run, lambda arguments: print(table(arguments.runs)), seeds=3
    )
    running.add_argument("--processes", type=int, default=2)
    reading.add_argument("runs", type=Path)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
