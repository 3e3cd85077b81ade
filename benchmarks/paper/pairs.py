"""Table 7: GD and IGD of the fronts of two models, to that of a grid of merges.

In the paper's units: p = 2 as its appendix prints them, of raw metric values. The
distances shrink with the number of points, and losses and accuracies have units of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from mergekit_map.compare.indicators import (
    front_of,
    generational_distance,
    mean_and_std,
)
from mergekit_map.compare.tables import Cell, Column, Spread, Table
from mergekit_map.surrogates.arrays import FloatArray
from paper.kept import Result
from paper.published import DISTANCES, WIN_RATES
from paper.runs import Runs

SEEDS = range(3)
POINTS = 25  # of a predicted front: distances depend on how many there are
_CAPTION = (
    "As the paper prints them, p = 2, of metrics in their own units: the distances of "
    "k points, squared, summed, and the root divided by k, so that more points are "
    "nearer. The truth is what nothing dominates of a grid of {direct} merges, between "
    "which a front may be better than it. *default*: the merges that a default search "
    "measured itself, those that no other dominates; *predicted*: {points} points of "
    "the front that it predicts, as measured. *algorithm 1*: as many of the front that "
    "the paper's algorithm predicts. ± over {seeds} seeds; the paper does "
    "not say what its ± is over, nor how many merges it took."
)


def table7(runs: Runs) -> Result:
    """Measure how far fronts of pairs are from a grid's, as of language models."""
    pairs = _pairs(runs)
    rows = [row for pair in pairs for row in _rows(runs, pair)]
    rows += [
        [f"paper: {name}", "MAP", None, None, *(Spread(*v) for v in values), None]
        for name, values in DISTANCES.items()
    ]
    said = "; ".join(
        f"{row[0]} {row[4].mean:.4f} and {row[5].mean:.4f} with {row[2]} merges"
        for row in rows
        if row[1] == "default"
    )
    caption = _CAPTION.format(direct=runs.direct(2), points=POINTS, seeds=len(SEEDS))
    return Result(
        title="Table 7: GD and IGD of pairs' fronts, to a grid's",
        headline=(
            f"GD and IGD of a default search: {said} (paper, in other units: 0.014 to "
            "0.039 and 0.018 to 0.035)."
        ),
        tables=[
            Table(
                name="distances",
                title="Distances to the front of a grid",
                caption=caption,
                columns=[
                    *map(Column, ("models", "MAP", "merges", "points")),
                    *(Column(name, 4) for name in ("GD", "IGD", "GD + IGD")),
                ],
                rows=rows,
            )
        ],
    )


def _pairs(runs: Runs) -> list[tuple[str, str]]:
    """List up to three pairs that share no model: the paper's are apart, too."""
    return list(zip(runs.models[::2], runs.models[1::2], strict=False))[:3]


def _rows(runs: Runs, pair: tuple[str, str]) -> list[list[Cell]]:
    truth = front_of(runs.grid(pair, runs.direct(2)).own)
    merges = WIN_RATES[2].merges
    plain = [runs.plain(pair, seed) for seed in SEEDS]
    literal = [runs.as_in_the_paper(pair, merges, seed) for seed in SEEDS]
    fronts = {
        "default": [front_of(search.own) for search in plain],
        "default, predicted": [s.assessed(POINTS).measured for s in plain],
        "algorithm 1": [s.assessed(POINTS).measured for s in literal],
    }
    # A default search stops when it knows the front; numbers are those of seed 0.
    spent = dict.fromkeys(fronts, len(plain[0].own)) | {"algorithm 1": merges}
    name = " + ".join(pair)
    return [
        [name, way, spent[way], len(of[0]), *_distances(of, truth)]
        for way, of in fronts.items()
    ]


def _distances(fronts: Sequence[FloatArray], truth: FloatArray) -> list[Spread]:
    """Return GD, IGD and their sum, over the seeds."""
    gd = [generational_distance(front, truth) for front in fronts]
    igd = [generational_distance(truth, front) for front in fronts]
    both = [a + b for a, b in zip(gd, igd, strict=True)]
    return [mean_and_std(values) for values in (gd, igd, both)]
