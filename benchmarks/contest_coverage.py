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

import argparse
import functools
import itertools
import multiprocessing
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contest_truth import ACCURACY, SCENES, Array, plain_design, scene, unseen_merges
from records import append, markdown, read

from mergekit_map.compare.budget import draw_seed
from mergekit_map.errors import DesignError
from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link

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

    python benchmarks/contest_coverage.py run FAMILIES RUNS --seeds 1
    python benchmarks/contest_coverage.py table RUNS

Means over functions, tasks and seeds; in brackets the lowest tenth; what is
not between {GOOD[0]} and {GOOD[1]} in italics.
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

        def value(X: Array, f: Any = f, link: str = link) -> Array:
            return LINKS[link].apply(_SHIFT[link] + f(X))

        yield Case(name, link, box, value)
    for name in [name for name, chosen in SCENES.items() if chosen.d == d]:
        yield from _scene_cases(families, name)


def _scene_cases(families: Path, name: str) -> Iterator[Case]:
    truth = scene(families, name)
    links = ["identity", "sigmoid"]
    if truth.metric is not ACCURACY:
        links = ["identity", "softplus", "mirror"]
    for (column, task), link in itertools.product(enumerate(truth.names), links):
        sign = -1 if link == "mirror" else 1

        def value(X: Array, sign: int = sign, column: int = column) -> Array:
            return sign * truth.predict(X)[:, column]

        def stderr(X: Array, column: int = column) -> Array:
            return truth.stderr(X)[:, column]

        yield Case(f"{name} {task}", link, truth.bounds, value, stderr)


def fits(case: Case, seeds: int) -> Iterator[dict[str, Any]]:
    """Fit, and count how many of the unseen merges are covered."""
    unseen = unseen_merges(case.bounds)
    Y = case.value(unseen)
    for n, noise, seed in itertools.product(SIZES, NOISES, range(seeds)):
        # Of its own, as what one draw has in it is not to be taken for what is usual.
        rng = np.random.default_rng([seed, n, *f"{case.name} {case.link}".encode()])
        X = plain_design(case.bounds, n, draw_seed(rng))
        y, stderr = case.value(X), None
        if noise == "iid":
            stderr = np.full(n, NOISE * np.ptp(Y))
            link = LINKS[case.link]
            y = np.clip(y + rng.normal(scale=stderr), link.lower, link.upper)
        elif noise == "shared":
            if case.stderr is None:
                continue
            stderr = case.stderr(X)
        for kind in KINDS:
            key = {"case": case.name, "link": case.link, "d": len(case.bounds), "n": n}
            covered = _covered(case, kind, (X, y, stderr), (unseen, Y))
            if covered is not None:
                key |= {"noise": noise, "seed": seed, "kind": kind}
                yield {**key, "covered": covered}


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
    return np.asarray(np.sin(3 * X @ _directions(X)) + X[:, 0] - X[:, 1] ** 2)


def _bend(X: Array) -> Array:
    """Rise to a plateau, as a task does that one model knows and others forget."""
    return np.asarray(2 * np.tanh(3 * X[:, 0] - 2 * X[:, 1:].mean(axis=1)) - X[:, -1])


def _steep(X: Array) -> Array:
    """Grow ever faster with the length of the merge, as losses do."""
    return np.asarray(np.expm1(1.5 * np.linalg.norm(X - 0.3, axis=1)) - X[:, 0])


def _bump(X: Array) -> Array:
    return np.asarray(3 * np.exp(-4 * ((X - 0.6) ** 2).sum(axis=1)) - X.sum(axis=1))


def _directions(X: Array) -> Array:
    return 1 / np.arange(1, X.shape[1] + 1)


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "wave": _wave,
    "bend": _bend,
    "steep": _steep,
    "bump": _bump,
}
# Near the bend of the link, so that it matters.
_SHIFT = {"identity": 0.0, "sigmoid": 0.0, "softplus": 0.5, "mirror": -0.5}


def run(arguments: argparse.Namespace) -> None:
    """Fit all there is, case by case."""
    work = functools.partial(_one_case, arguments)
    places = [
        (d, index)
        for d in arguments.dimensions
        for index, _ in enumerate(_all_cases(arguments.families, d))
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for found in pool.imap_unordered(work, places):
            append(arguments.runs, *found)


def _one_case(arguments: argparse.Namespace, place: tuple[int, int]) -> Any:
    warnings.simplefilter("ignore")
    d, index = place
    return list(fits(_all_cases(arguments.families, d)[index], arguments.seeds))


@functools.cache
def _all_cases(families: Path, d: int) -> list[Case]:
    return list(cases(families, d))


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
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(call=run)
    command.add_argument("families", type=Path)
    command.add_argument("runs", type=Path, help="a .jsonl file, which grows")
    command.add_argument("--dimensions", nargs="+", type=int, default=DIMENSIONS)
    command.add_argument("--seeds", type=int, default=3)
    command.add_argument("--processes", type=int, default=2)
    command = commands.add_parser("table")
    command.set_defaults(call=lambda arguments: print(table(arguments.runs)))
    command.add_argument("runs", type=Path)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
