"""Figure 6: GD and IGD against the number of merges, for two and three models."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.distances import (
    POINTS,
    Distances,
    distances,
    predicted_front,
    true_front,
)
from experiments.drawing import CHOSEN, MEASURED, PREDICTED, legend_above, new_figure
from experiments.kept import Result
from experiments.runs import Runs

from mergekit_map.compare.scores import front_of
from mergekit_map.compare.tables import Cell, Column, Table

# The smallest designs that determine a quadratic, up to the paper's numbers.
MERGES = {2: (8, 12, 16, 20, 30), 3: (12, 20, 30, 40, 50)}
SEEDS = range(3)
_OTHER_SEED = 99  # so that the truth has none of the merges that are fitted
_COLOURS = {
    "algorithm 1": PREDICTED,
    "default": MEASURED,
    "default, predicted": CHOSEN,
}
_COLUMNS = [*map(Column, ("N", "MAP", "merges")), Column("GD", 5), Column("IGD", 5)]
_CAPTION = (
    "To the front of a direct search of uniform merges ({direct}), p = 2, in the "
    "metrics' own units; medians of {seeds} seeds. *algorithm 1*: {points} points of "
    "the front that the paper's algorithm predicts from so many merges, as measured, "
    "at no charge. *default*: what no other dominates of the first merges of a default "
    "search, which measures one after the other and stops by itself; *predicted*: "
    "{points} points of its last front, as measured, at no charge."
)


def figure6(runs: Runs) -> Result:
    """Draw how near fronts come to that of a direct search, as merges are measured."""
    sizes = [n for n in MERGES if n in runs.sizes]
    rows = [row for n in sizes for row in _rows(runs, n)]
    figure, panels = new_figure(1, 2, size=5)
    for axes, column, name in zip(panels, (3, 4), ("GD", "IGD"), strict=True):
        for n in sizes:
            style = "-" if n == 2 else "--"
            for way, color in _COLOURS.items():
                mine = [row for row in rows if row[0] == n and row[1] == way]
                points = [(row[2], row[column]) for row in mine]
                label = f"{way}, N = {n}"
                x, y = zip(*points, strict=True)
                axes.plot(
                    x, y, style, marker="o", markersize=4, color=color, label=label
                )
        axes.set_yscale("log")
        axes.set_xlabel("merges that MAP evaluated")
        axes.set_ylabel(name)
    legend_above(figure, panels[0])
    said = "; ".join(_last(rows, n) for n in sizes)
    direct = ", ".join(f"{runs.direct(n)} for N = {n}" for n in sizes)
    caption = _CAPTION.format(direct=direct, seeds=len(SEEDS), points=POINTS)
    return Result(
        title="Figure 6: GD and IGD against the number of merges",
        headline=f"At the end, default search: {said} (the paper has curves only).",
        figure=figure,
        caption=caption,
        tables=[
            Table(
                name="curves",
                title="Medians",
                caption="",
                columns=_COLUMNS,
                rows=rows,
            )
        ],
    )


def _last(rows: Sequence[Sequence[Cell]], n: int) -> str:
    row = [row for row in rows if row[0] == n and row[1] == "default"][-1]
    return f"N = {n}, {row[2]} merges: GD {row[3]:.5f}, IGD {row[4]:.5f}"


def _rows(runs: Runs, n: int) -> list[list[Cell]]:
    models = runs.models[:n]
    direct = runs.direct_search(models, runs.direct(n), "uniform", _OTHER_SEED)
    truth = true_front(direct)
    rows: list[list[Cell]] = []
    for merges in MERGES[n]:
        found = [runs.as_in_the_paper(models, merges, seed) for seed in SEEDS]
        measured = [distances(predicted_front(search), truth) for search in found]
        rows.append([n, "algorithm 1", merges, *_medians(measured)])
    own = [runs.plain(models, seed).own for seed in SEEDS]
    longest = max(map(len, own))
    for merges in range(n + 3, longest + 1):
        measured = [distances(front_of(Y[:merges]), truth) for Y in own]
        rows.append([n, "default", merges, *_medians(measured)])
    ends = [runs.plain(models, seed) for seed in SEEDS]
    measured = [distances(predicted_front(search), truth) for search in ends]
    rows.append([n, "default, predicted", longest, *_medians(measured)])
    return rows


def _medians(found: Sequence[Distances]) -> list[float]:
    return [statistics.median(getattr(d, key) for d in found) for key in ("gd", "igd")]
