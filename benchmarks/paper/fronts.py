"""Tables 2, 3 and 7: fronts beside those of direct search, and of a grid of merges.

Distances (table 7) are in the paper's units: p = 2 as its appendix prints them, of raw
metric values. They shrink with the number of points, and losses and accuracies have
units of their own. Kept tables 7 were made when the grid also had the soup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mergekit_map.compare.contest import DIRECT, r_squared_scores
from mergekit_map.compare.indicators import (
    front_of,
    generational_distance,
    mean_and_std,
    win_rate,
)
from mergekit_map.compare.tables import Cell, Column, Spread, Table
from mergekit_map.results.surrogates import read_finished
from mergekit_map.surrogates.arrays import FloatArray
from paper.kept import Result
from paper.published import DISTANCES, WIN_RATES
from paper.runs import Compared, Runs, Searched, Unfit

_COLUMNS = [
    *(Column("N"), Column("merges, direct"), Column("per axis", digits=2)),
    *map(Column, ("MAP", "merges, MAP", "to judge it")),
    Column("win rate", digits=2, percent=True),
    Column("win rate, own merges", digits=2, percent=True),
    Column("win rate of the best of all", digits=2, percent=True),
    *(Column("R²"), Column("paper: merges, MAP")),
    *(Column("paper: win rate", digits=2, percent=True), Column("paper: R²")),
]
_CAPTION = (
    "Win rate: over all pairs of points of the two fronts and all tasks, as "
    "measured; equal values count half, so that 50 % is a tie (the paper counts them "
    "as lost). Direct search: uniform random merges, no model by itself among them "
    "unless drawn; those that no other dominates count. The front of MAP is what it "
    "predicts, up to 100 points, measured *to judge it*, at no charge, as in the "
    "paper. *Own merges*: of what the search itself measured and counts, what no "
    "other dominates: here both sides have paid for all that they show. *Best of "
    "all*: what nothing dominates of all that was measured of these models; no front "
    "is better, and yet its rate depends on where its points lie, and may be below "
    "50 %. R²: the surrogates on merges of the direct search, which they were not "
    "fitted to; ± over tasks. *default* is `mergekit-map search` as it is; "
    "*algorithm 1* the paper's plain algorithm with the paper's number of merges, "
    "anchors among them: uniform merges, least squares, nothing refined."
)
SEEDS = range(3)
POINTS = 25  # of a predicted front: distances depend on how many there are
_OF_DISTANCES = (
    "As the paper prints them, p = 2, of metrics in their own units: the distances of "
    "k points, squared, summed, and the root divided by k, so that more points are "
    "nearer. The truth is what nothing dominates of a grid of {direct} merges, between "
    "which a front may be better than it. *default*: the merges that a default search "
    "measured itself, those that no other dominates; *predicted*: {points} points of "
    "the front that it predicts, as measured. *algorithm 1*: as many of the front that "
    "the paper's algorithm predicts. ± over {seeds} seeds; the paper does "
    "not say what its ± is over, nor how many merges it took."
)


def table2(runs: Runs) -> Result:
    """Compare with direct search where that is the truth, for two and three models."""
    return _table(runs, "Table 2", [n for n in runs.sizes if n < 4])


def table3(runs: Runs) -> Result:
    """Compare with direct search for four models and more."""
    return _table(runs, "Table 3", [n for n in runs.sizes if n >= 4])


def _table(runs: Runs, name: str, sizes: Sequence[int]) -> Result:
    if not sizes:
        raise Unfit(f"it has {len(runs.models)} models")
    rows = [row for n in sizes for row in _rows(runs, n)]
    said = ", ".join(
        f"N = {row[0]}: {_percent(row[6])} with {row[4]} merges against {row[1]}, "
        f"{_percent(row[7])} by these merges alone (paper {_percent(row[11])} with "
        f"{row[10]} against {WIN_RATES[row[0]].direct})"
        for row in rows[::2]
    )
    return Result(
        title=f"{name}: win rate over direct search",
        headline=f"Win rate of a default search, {said}.",
        tables=[
            Table(
                name="win_rates",
                title="Win rates",
                caption=_CAPTION,
                columns=_COLUMNS,
                rows=rows,
            )
        ],
    )


def _percent(rate: float | Spread) -> str:
    mean = rate.mean if isinstance(rate, Spread) else rate
    return f"{100 * mean:.1f} %"


def _rows(runs: Runs, n: int) -> list[list[Any]]:
    paper = WIN_RATES[n]
    models = runs.models[:n]
    compared = runs.compare(n)
    direct = front_of(compared.contest.rivals[DIRECT].Y)
    literal = runs.as_in_the_paper(models, paper.merges)
    rate = Spread(*(value / 100 for value in paper.rate))
    published: list[Cell] = [paper.merges, rate, Spread(*paper.r2)]
    judged = literal.assessed().measured
    best = win_rate(compared.contest.reference, direct)
    return [
        [
            *(n, runs.direct(n), runs.direct(n) ** (1 / n)),
            *(name, len(search.own), len(points)),
            win_rate(points, direct),
            win_rate(front_of(search.own), direct),
            best,
            _r2(compared, search),
            *published,
        ]
        for name, search, points in (
            ("default", compared, compared.contest.points),
            ("algorithm 1", literal, judged),
        )
    ]


def _r2(compared: Compared, searched: Searched) -> Spread:
    """Hold the surrogates of a search against the direct search of another."""
    surrogates = read_finished(searched.path).surrogates
    scores = r_squared_scores(compared.study, compared.contest, surrogates)
    return mean_and_std([r2 for r2 in scores.values() if not math.isnan(r2)])


def table7(runs: Runs) -> Result:
    """Measure how far fronts of pairs are from a grid's, as of language models."""
    # Up to three that share no model: the paper's are apart, too.
    pairs = [*zip(runs.models[::2], runs.models[1::2], strict=False)][:3]
    rows = [row for pair in pairs for row in _rows_of_pair(runs, pair)]
    rows += [
        [f"paper: {name}", "MAP", None, None, *(Spread(*v) for v in values), None]
        for name, values in DISTANCES.items()
    ]
    said = "; ".join(
        f"{row[0]} {row[4].mean:.4f} and {row[5].mean:.4f} with {row[2]} merges"
        for row in rows
        if row[1] == "default"
    )
    merges = int(runs.direct(2) ** 0.5) ** 2  # as ``Runs.grid`` measures
    numbers = {"direct": merges, "points": POINTS, "seeds": len(SEEDS)}
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
                caption=_OF_DISTANCES.format(**numbers),
                columns=[
                    *map(Column, ("models", "MAP", "merges", "points")),
                    *(Column(name, 4) for name in ("GD", "IGD", "GD + IGD")),
                ],
                rows=rows,
            )
        ],
    )


def _rows_of_pair(runs: Runs, pair: tuple[str, str]) -> list[list[Cell]]:
    truth = front_of(runs.grid(pair, runs.direct(2)))
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
