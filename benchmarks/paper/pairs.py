"""Table 7, figures 7 and 9: fronts of two models, beside a grid of merges."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from mergekit_map.compare.indicators import mean_and_std
from mergekit_map.compare.tables import Cell, Column, Spread, Table
from mergekit_map.report.plots import name_mark
from mergekit_map.surrogates.arrays import FloatArray
from paper.distances import (
    POINTS,
    Distances,
    distances,
    own_front,
    predicted_front,
    true_front,
)
from paper.drawing import (
    ANCHOR,
    DIRECT,
    MEASURED,
    OTHER,
    PREDICTED,
    front_line,
    legend_above,
    name_axes,
    new_figure,
)
from paper.kept import Result
from paper.published import (
    DISTANCES,
    MEDICAL_DIRECT,
    MEDICAL_GD,
    MEDICAL_IGD,
    MEDICAL_MERGES,
    WIN_RATES,
)
from paper.runs import Runs, Unfit
from paper.searched import Searched
from paper.win_rates import known

Pair = tuple[str, str]
SEEDS = range(3)
_SHOWN = 10  # points of a front, as measured
_MATHS = ("math", "mathematics", "arithmetic")
_CODE = ("code", "python")
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
        and isinstance(row[4], Spread)
        and isinstance(row[5], Spread)
    )
    caption = _CAPTION.format(direct=_direct(runs), points=POINTS, seeds=len(SEEDS))
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


def figure7(runs: Runs) -> Result:
    """Draw two tasks of images, searched as the paper searched X-rays."""
    if runs.kind != "images":
        raise Unfit("it has no tasks of images")
    pair = _pairs(runs)[0]
    direct = runs.direct_search(pair, runs.budget(MEDICAL_DIRECT))
    literal = runs.as_in_the_paper(pair, MEDICAL_MERGES)
    found = distances(predicted_front(literal), true_front(direct))
    figure, (axes,) = new_figure(1, 1, size=5)
    draw_pair(axes, direct.own, literal)
    legend_above(figure, axes, 2)
    return Result(
        title="Figure 7: two tasks of images, algorithm 1 beside a grid",
        headline=(
            f"GD {found.gd:.4f} and IGD {found.igd:.4f} with {len(literal.own)} merges "
            f"against {len(direct.own)} (paper, chest X-rays: {MEDICAL_GD} and "
            f"{MEDICAL_IGD} with {MEDICAL_MERGES} against {MEDICAL_DIRECT})."
        ),
        figure=figure,
        caption=_DRAWN,
        data={"gd": found.gd, "igd": found.igd},
    )


def figure9(runs: Runs) -> Result:
    """Draw the front of mathematics and code."""
    found = [
        next((name for name in runs.models if name in names), None)
        for names in (_MATHS, _CODE)
    ]
    if None in found:
        raise Unfit("it has no models of mathematics and code")
    title = "Figure 9: the front of mathematics and code"
    first, second = sorted(map(str, found), key=runs.models.index)
    return _drawn(runs, title, 1, [(first, second)])


_DRAWN = (
    "Grey: the grid. Blue: the front that MAP predicts; red: points of it as measured. "
    "Dashed: what the single models measured. Better is to the right and above."
)


def _drawn(
    runs: Runs, title: str, count: int, pairs: Sequence[Pair] | None = None
) -> Result:
    chosen = (pairs or _pairs(runs))[:count]
    figure, panels = new_figure(1, len(chosen), size=5)
    said, data = [], {}
    for axes, pair in zip(panels, chosen, strict=True):
        direct = runs.direct_search(pair, _direct(runs))
        ours = runs.plain(pair)
        draw_pair(axes, direct.own, ours)
        found = distances(own_front(ours), true_front(direct))
        name = " + ".join(pair)
        said.append(f"{name}: GD {found.gd:.4f}, IGD {found.igd:.4f}")
        data[name] = {"gd": found.gd, "igd": found.igd, "merges": len(ours.own)}
    legend_above(figure, panels[0])
    return Result(
        title=title,
        headline=f"Beside a grid of {_direct(runs)}, {'; '.join(said)}.",
        figure=figure,
        caption=_DRAWN,
        data=data,
    )


def draw_pair(axes: Axes, seen: FloatArray, ours: Searched) -> None:
    """Draw the front of a search over what a direct search has ``seen``, (n, 2)."""
    values = ours.values(seen)
    axes.scatter(*values.T, s=8, color=DIRECT, alpha=0.5, label="direct search")
    front_line(axes, values, seen, color=DIRECT, label="its front")
    predicted = ours.front.utilities(ours.front.points, "predicted")
    values = ours.values(predicted)
    axes.plot(*values.T, ".", markersize=4, color=PREDICTED, label="MAP, predicted")
    measured = known(ours.assessed(_SHOWN).measured)
    axes.scatter(
        *ours.values(measured).T, s=24, color=MEASURED, zorder=3, label="MAP, measured"
    )
    singles = [a for a in ours.front.anchors if a.label not in {"base", "soup"}]
    for model in singles:
        x, y = ours.values(ours.front.utilities([model], "measured"))[0]
        axes.scatter(x, y, marker="^", s=36, color=ANCHOR, zorder=3)
    best = ours.values(ours.front.utilities(singles, "measured").max(axis=0))
    axes.axvline(best[0], color=OTHER, linestyle="--", linewidth=0.8)
    axes.axhline(
        best[1], color=OTHER, linestyle="--", linewidth=0.8, label="best single"
    )
    name_axes(axes, ours.metrics)
    for model in singles:
        x, y = ours.values(ours.front.utilities([model], "measured"))[0]
        name_mark(axes, str(model.label), (x, y))


def _pairs(runs: Runs) -> list[Pair]:
    """List up to three pairs that share no model: the paper's are apart, too."""
    apart = list(zip(runs.models[::2], runs.models[1::2], strict=False))
    return apart[:3]


def _direct(runs: Runs) -> int:
    return runs.budget(WIN_RATES[2].direct)


def _rows(runs: Runs, pair: Pair) -> list[list[Cell]]:
    truth = true_front(runs.direct_search(pair, _direct(runs)))
    merges = WIN_RATES[2].merges
    plain = [runs.plain(pair, seed) for seed in SEEDS]
    literal = [runs.as_in_the_paper(pair, merges, seed) for seed in SEEDS]
    fronts = {
        "default": [own_front(search) for search in plain],
        "default, predicted": [predicted_front(search) for search in plain],
        "algorithm 1": [predicted_front(search) for search in literal],
    }
    # A default search stops when it knows the front; numbers are those of seed 0.
    spent = dict.fromkeys(fronts, len(plain[0].own)) | {"algorithm 1": merges}
    name = " + ".join(pair)
    return [
        [
            name,
            way,
            spent[way],
            len(of[0]),
            *_spreads([distances(Y, truth) for Y in of]),
        ]
        for way, of in fronts.items()
    ]


def _spreads(found: Sequence[Distances]) -> list[Spread]:
    gd, igd = ([getattr(d, key) for d in found] for key in ("gd", "igd"))
    both = [a + b for a, b in zip(gd, igd, strict=True)]
    return [mean_and_std(values) for values in (gd, igd, both)]
