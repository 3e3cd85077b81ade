"""Figure 14: Bayesian MAP against plain MAP with 6, 9 and 12 merges.

Base and single models lie outside of a box that begins right above 0, so that they are
measured but not fitted, as in the paper; the soup lies inside and is one more merge
than the paper has.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from mergekit_map.compare.indicators import mean_and_std
from mergekit_map.compare.tables import Cell, Column, Table
from paper.distances import POINTS, Distances, distances, predicted_front, true_front
from paper.drawing import MEASURED, PREDICTED, legend_above, new_figure
from paper.kept import Result
from paper.pairs import Pair
from paper.published import BAYESIAN_PAIRS, BAYESIAN_POINTS, WIN_RATES
from paper.runs import Runs
from paper.searched import Searched

_BOUNDS = [0.0001, 1.0]
_ANCHORS = 4  # base, two models, soup
_WAYS = ("plain", "bayesian")
_COLUMNS = [
    *map(Column, ("MAP", "merges")),
    *(Column(name, 4) for name in ("GD", "IGD", "median GD + IGD")),
]
_NOTE = (
    "Uniform merges and least squares, by `strategy: map` with `refine: false` and by "
    "`strategy: bayesian`. Base and single models are measured, but lie outside of the "
    f"box, which begins at {_BOUNDS[0]}, and are not fitted; the soup is, as one merge "
    "more than the paper has. The truth is a grid of {direct} merges."
)


def figure14(runs: Runs) -> Result:
    """Draw GD and IGD of both with 6, 9 and 12 merges, over several pairs."""
    pairs = _pairs(runs)
    found = {
        (way, points): [_distances(runs, pair, way, points) for pair in pairs]
        for way in _WAYS
        for points in BAYESIAN_POINTS
    }
    rows = [_row(way, points, values) for (way, points), values in found.items()]
    ahead = {
        points: sum(
            b.gd + b.igd < p.gd + p.igd
            for p, b in zip(
                found["plain", points], found["bayesian", points], strict=True
            )
        )
        for points in BAYESIAN_POINTS[1:]
    }
    said = " and ".join(f"{k} with {points} merges" for points, k in ahead.items())
    return Result(
        title="Figure 14: Bayesian MAP against plain MAP",
        headline=(
            f"Of {len(pairs)} pairs, Bayesian sampling has the smaller GD + IGD on "
            f"{said} (paper: better in most of {BAYESIAN_PAIRS})."
        ),
        figure=_figure(rows),
        caption=f"Means of {len(pairs)} pairs.",
        tables=[
            Table(
                name="bayesian",
                title="Means and standard deviations over pairs",
                caption=(
                    f"Of {POINTS} points of each predicted front, as measured; p = 2, "
                    "in the metrics' own units."
                ),
                columns=_COLUMNS,
                rows=rows,
            )
        ],
        notes=[_NOTE.format(direct=_direct(runs)), f"Pairs: {_named(pairs)}."],
        data={"ahead": {str(points): k for points, k in ahead.items()}},
    )


def _pairs(runs: Runs) -> list[Pair]:
    """Take neighbours first: with eight models these are seven pairs."""
    names = runs.models
    near = list(itertools.pairwise(names))
    others = [pair for pair in runs.pairs() if pair not in near]
    return [*near, *others][:BAYESIAN_PAIRS]


def _named(pairs: Sequence[Pair]) -> str:
    return ", ".join(" + ".join(pair) for pair in pairs)


def _direct(runs: Runs) -> int:
    return runs.budget(WIN_RATES[2].direct)


def _searched(runs: Runs, pair: Pair, way: str, points: int) -> Searched:
    asked = {
        "surrogate": "quadratic",
        "bounds": _BOUNDS,
        "evaluations": _ANCHORS + points,
        "remeasure": 0,
    }
    if way == "bayesian":
        return runs.search(pair, f"bayesian{points}", strategy="bayesian", **asked)
    return runs.search(pair, f"plain{points}", design="uniform", refine=False, **asked)


def _distances(runs: Runs, pair: Pair, way: str, points: int) -> Distances:
    truth = true_front(runs.direct_search(pair, _direct(runs)))
    return distances(predicted_front(_searched(runs, pair, way, points)), truth)


def _row(way: str, points: int, found: Sequence[Distances]) -> list[Cell]:
    both = [sum(d) for d in found]
    means = [mean_and_std([getattr(d, key) for d in found]) for key in ("gd", "igd")]
    return [way, points, *means, float(np.median(both))]


def _figure(rows: Sequence[Sequence[Cell]]) -> Figure:
    figure, panels = new_figure(1, 2)
    for axes, column, name in zip(panels, (2, 3), ("GD", "IGD"), strict=True):
        for way, color in zip(_WAYS, (PREDICTED, MEASURED), strict=True):
            mine = [row for row in rows if row[0] == way]
            x = [row[1] for row in mine]
            y = [row[column].mean for row in mine]
            axes.plot(x, y, marker="o", color=color, label=way)
        axes.set_xticks(BAYESIAN_POINTS)
        axes.set_xlabel("merges")
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
    legend_above(figure, panels[0])
    return figure
