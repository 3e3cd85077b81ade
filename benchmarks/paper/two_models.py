"""Figures 1 and 5: two models, what surrogates say of them, and all baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from mergekit_map.compare.contest import DIRECT as RANDOM
from mergekit_map.compare.indicators import front_of
from mergekit_map.compare.tables import Column, Table
from mergekit_map.results.records import read_record
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogate_file import Surrogates
from mergekit_map.surrogates.arrays import FloatArray
from paper.drawing import (
    ANCHOR,
    DIRECT,
    MEASURED,
    PREDICTED,
    front_line,
    legend_above,
    name_axes,
    new_figure,
)
from paper.kept import Result
from paper.pairs import draw_pair
from paper.runs import Runs, Unfit
from paper.searched import Compared, Searched
from paper.win_rates import known

_POINTS = 10  # of the front that are shown as measured, as in the paper
_DARE = {"density": 0.5}
_LEVELS = 12
_CELLS = 60  # of an axis of a fitted landscape
_NOT_DRAWN = {"Single task models", "Best single model"}
_MARKS = "sPXDv<>pH8*dh1234o^+x"


def figure1(runs: Runs) -> Result:
    """Draw the measured landscape of two tasks, the fitted one, and the fronts."""
    compared = _compared(runs)
    figure, panels = new_figure(2, 3)
    direct = compared.contest.rivals[RANDOM]
    for row, task in enumerate(compared.metrics):
        _draw_landscape(panels[3 * row : 3 * row + 2], compared, row, task)
    draw_pair(panels[2], known(direct.Y), compared)
    panels[2].legend(fontsize=7, frameon=False)
    panels[5].set_axis_off()
    r2 = compared.report["r2"]
    return Result(
        title="Figure 1: the landscape of two tasks, measured and fitted",
        headline=(
            f"R² of the surrogates on {len(direct.X)} merges that they were not fitted "
            f"to: {r2['mean']:.4f}, after {len(compared.own)} merges."
        ),
        figure=figure,
        caption=(
            "Left: by merges of the direct search (dots). Middle: the surrogates of "
            "a default search; red: its front. Right: the fronts."
        ),
    )


def _draw_landscape(
    panels: Sequence[Axes], compared: Compared, row: int, task: str
) -> None:
    """Draw a task as the direct search measured it, and as it was fitted."""
    left, right = panels
    direct = compared.contest.rivals[RANDOM]
    path = RunFolder(compared.path).surrogates
    surrogate = read_record(path, Surrogates, "surrogates").values()[task]
    axis = np.linspace(0, 1, _CELLS)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    front = compared.study.vectors(p.coefficients for p in compared.front.points)
    seen = np.isfinite(direct.Y[:, row])
    measured = compared.metrics[task].sign * direct.Y[seen, row]
    if np.ptp(measured) == 0:
        raise Unfit(f"{task} is {measured[0]} wherever it was measured")
    levels = np.linspace(measured.min(), measured.max(), _LEVELS)
    left.tricontourf(*direct.X[seen].T, measured, levels=levels)
    left.plot(*direct.X[seen].T, ".", markersize=2, color="white")
    fitted = surrogate.predict(grid).reshape(_CELLS, _CELLS)
    shown = right.contourf(axis, axis, fitted, levels=levels, extend="both")
    right.plot(*front.T, ".", markersize=4, color=MEASURED)
    right.figure.colorbar(shown, ax=right)
    for axes, word in ((left, "measured"), (right, "fitted")):
        axes.set_title(f"{task}, {word}", parse_math=False)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        for end, name in zip("xy", compared.study.bounds, strict=True):
            getattr(axes, f"set_{end}label")(name, parse_math=False)


def figure5(runs: Runs) -> Result:
    """Draw fronts of MAP with task arithmetic and with DARE, and all baselines."""
    arithmetic = _compared(runs)
    models = runs.models[:2]
    dare = runs.search(models, "dare", method="dare_linear", parameters=_DARE)
    figure, panels = new_figure(1, 2, size=6)
    for axes, search, name in zip(
        panels, (arithmetic, dare), ("task arithmetic", "DARE"), strict=True
    ):
        _draw(axes, search, arithmetic)
        axes.set_title(f"MAP with {name}")
    legend_above(figure, panels[0], 5)
    points = known(arithmetic.contest.points)
    front = front_of(points)
    beaten = {name: _dominated(Y, front) for name, Y in _baselines(arithmetic).items()}
    baselines = np.vstack(list(_baselines(arithmetic).values()))
    searched = np.vstack([known(r.Y) for r in arithmetic.contest.rivals.values()])
    lying = [name for name, share in beaten.items() if share == 1]
    return Result(
        title="Figure 5: the fronts of two models, and all baselines",
        headline=(
            f"Points of MAP's front dominate {len(lying)} of {len(beaten)} baselines "
            "(paper: most lie within or on the front). Of its points, as measured, are "
            f"dominated by some baseline {_count(points, baselines)}, by a merge of "
            f"direct search or MOEA/D {_count(points, searched)}, and with DARE "
            f"{_count(known(dare.assessed(_POINTS).measured), searched)}."
        ),
        figure=figure,
        caption=(
            "Better is to the right and above. Blue: predicted by MAP; red: "
            f"{_POINTS} points of it as measured. Merges far outside are at the edge."
        ),
        tables=[_table(arithmetic, beaten)],
    )


def _compared(runs: Runs) -> Compared:
    return runs.compare(runs.plain(runs.models[:2]), runs.direct(2))


def _baselines(compared: Compared) -> dict[str, FloatArray]:
    drawn = {n: Y for n, Y in compared.baselines.items() if n not in _NOT_DRAWN}
    return {name: known(Y) for name, Y in drawn.items() if len(known(Y))}


def _dominated(Y: FloatArray, front: FloatArray) -> float:
    """Give the share of merges (k, m) that some point of a front dominates."""
    worse = (front[None] >= Y[:, None]).all(axis=2)
    better = (front[None] > Y[:, None]).any(axis=2)
    return float((worse & better).any(axis=1).mean())


def _count(points: FloatArray, others: FloatArray) -> str:
    """Count the points (k, m) that some other merge dominates."""
    return f"{round(_dominated(points, others) * len(points))} of {len(points)}"


def _draw(axes: Axes, search: Searched, compared: Compared) -> None:
    predicted = search.front.utilities(search.front.points, "predicted")
    axes.plot(
        *search.values(predicted).T,
        ".",
        markersize=4,
        color=PREDICTED,
        label="MAP, predicted",
    )
    points = known(search.assessed(_POINTS).measured)
    axes.scatter(
        *search.values(points).T, color=MEASURED, label="MAP, measured", zorder=4
    )
    moead = known(compared.contest.rivals["moead"].Y)
    front_line(
        axes, compared.values(moead), moead, color=DIRECT, marker=".", label="MOEA/D"
    )
    _frame(axes, search.values(np.vstack([predicted, points, front_of(moead)])))
    for mark, (name, Y) in zip(_MARKS, _baselines(compared).items(), strict=False):
        values = _within(axes, compared.values(Y))
        axes.scatter(*values.T, marker=mark, s=40, label=name, zorder=3, alpha=0.8)
    singles = np.diag(_singles(search))
    axes.axvline(singles[0], color=ANCHOR, linestyle="--", linewidth=0.8)
    axes.axhline(
        singles[1], color=ANCHOR, linestyle="--", linewidth=0.8, label="single"
    )
    name_axes(axes, search.metrics)


def _singles(search: Searched) -> FloatArray:
    models = [a for a in search.front.anchors if a.label not in {"base", "soup"}]
    return search.values(search.front.utilities(models, "measured"))


def _frame(axes: Axes, values: FloatArray) -> None:
    """Look at where the fronts are, and half as far around them."""
    low, high = values.min(axis=0), values.max(axis=0)
    around = 0.5 * (high - low)
    axes.set_xlim(low[0] - around[0], high[0] + around[0])
    axes.set_ylim(low[1] - around[1], high[1] + around[1])


def _within(axes: Axes, values: FloatArray) -> FloatArray:
    ends = np.array([axes.get_xlim(), axes.get_ylim()])
    return np.clip(values, ends.min(axis=1), ends.max(axis=1))


def _table(compared: Compared, beaten: Mapping[str, float]) -> Table:
    rows = [
        [
            name,
            *compared.values(Y.mean(axis=0)[None])[0].tolist(),
            beaten[name],
        ]
        for name, Y in _baselines(compared).items()
    ]
    return Table(
        name="baselines",
        title="Baselines, as measured",
        caption=(
            "In the tasks' own units; means where one depends on the preference; "
            "the share of its merges that a measured point of MAP's front dominates."
        ),
        columns=[
            Column("method"),
            *map(Column, compared.metrics),
            Column("dominated by MAP", 0, percent=True),
        ],
        rows=rows,
    )
