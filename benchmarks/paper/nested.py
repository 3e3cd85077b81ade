"""Tables 8 and 9 and figure 12: merging pair by pair, against all at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mergekit_map.compare.indicators import draw_preferences, weighted_sums
from mergekit_map.compare.tables import Cell, Column, Spread, Table
from mergekit_map.results.front import Front
from mergekit_map.results.nested_order import members
from mergekit_map.results.records import read_record
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.surrogates.arrays import FloatArray
from paper.drawing import ANCHOR, CHOSEN, MEASURED, PREDICTED, legend_above, new_figure
from paper.kept import Result
from paper.preferences import as_predicted
from paper.published import (
    NESTED_MEASUREMENTS,
    NESTED_MERGES,
    NESTED_PREFERENCES,
    NESTED_SUMS,
    PLAIN_MEASUREMENTS,
    WIN_RATES,
)
from paper.runs import Runs, Unfit
from paper.searched import Compared, Searched

_SEED = 1  # of the preferences
_BASELINES = (
    *("TIES", "TIES, tuned", "DARE-TIES", "DARE-TIES, tuned"),
    *("Task arithmetic", "DARE-TA", "DARE-TA, tuned"),
)


def table9(runs: Runs) -> Result:
    """Hold nested MAP against plain MAP and baselines, by 10 preferences."""
    models = _models(runs)
    compared = runs.compare(runs.plain(models), runs.direct(len(models)))
    preferences = _preferences(runs, compared)
    found = [_nested(runs, models, weights) for weights in preferences]
    chosen = np.vstack([_chosen(search) for search in found])
    literal = runs.as_in_the_paper(models, WIN_RATES[len(models)].merges)
    rows = _sums(compared, literal, chosen, preferences)
    measured = [_measurements(search) for search in found]
    return Result(
        title="Table 9: nested MAP against plain MAP and baselines",
        headline=_headline(rows, measured, compared),
        tables=[
            Table(
                name="nested",
                title=f"Preference-weighted sums, {len(models)} models",
                caption=(
                    f"Mean ± standard deviation over {len(preferences)} random "
                    "preferences, in the units of table 4. Nested MAP searches anew "
                    f"for each, with {NESTED_MERGES} merges of every pair."
                ),
                columns=[
                    Column("method"),
                    Column("here", better="higher"),
                    Column("paper, per cent", 2),
                ],
                rows=[[*row, _published(row[0])] for row in rows],
                beyond=[0],
            ),
            _costs(measured, compared, literal),
        ],
        data={"preferences": preferences.tolist()},
    )


def _sums(
    compared: Compared, literal: Searched, chosen: FloatArray, preferences: FloatArray
) -> list[list[Cell]]:
    """Say what each method gives the preferences, single task models first."""
    merges = {
        "Single task models": compared.baselines["Single task models"],
        "MAP, nested": chosen,
        **_single_merges(compared),
    }
    found = {
        name: weighted_sums(np.atleast_2d(Y), preferences, compared.scale)
        for name, Y in merges.items()
    }
    for name, search in (("MAP, default", compared), ("MAP, algorithm 1", literal)):
        found[name] = as_predicted(search, preferences, compared.scale)
    return [[name, Spread(sums.mean, sums.std)] for name, sums in found.items()]


def figure12(runs: Runs) -> Result:
    """Draw the fronts of all pairs of a nested search."""
    models = _models(runs)
    search = _nested(runs, models, np.full(len(models), 1 / len(models)))
    fronts = _pair_fronts(search)
    columns = 2 if len(fronts) > 1 else 1
    figure, panels = new_figure(math.ceil(len(fronts) / columns), columns)
    for axes in panels[len(fronts) :]:
        axes.set_axis_off()
    for axes, front in zip(panels, fronts, strict=False):
        _draw(axes, front, runs)
    legend_above(figure, panels[0])
    return Result(
        title="Figure 12: the fronts of a nested search, pair by pair",
        headline=(
            f"{len(models)} models in {len(fronts)} pairs and "
            f"{_measurements(search)} measurements of a task (paper: "
            f"{NESTED_MEASUREMENTS} for eight)."
        ),
        figure=figure,
        caption=(
            "All tasks count alike. Axes: the mean over the tasks of each side, each "
            "from 0, the base, to 1, the task's own model. Blue: predicted; red: "
            "measured; star: what was chosen and merged further."
        ),
    )


def _models(runs: Runs) -> list[str]:
    if len(runs.models) < 3:
        raise Unfit(f"it has {len(runs.models)} models, which are one pair")
    return runs.models[: max(runs.sizes)]


def _preferences(runs: Runs, compared: Compared) -> FloatArray:
    count = max(2, min(NESTED_PREFERENCES, runs.budget(NESTED_PREFERENCES)))
    rng = np.random.default_rng(_SEED)
    return draw_preferences(len(compared.metrics), rng, count)


def _nested(runs: Runs, models: Sequence[str], weights: FloatArray) -> Searched:
    """Search for one preference; a folder each, since pairs follow from it."""
    tasks = [task.name for task in runs.family.tasks_of(models, runs.kind)]
    prefer = dict(zip(tasks, weights.round(6).tolist(), strict=True))
    name = "-".join(f"{round(1000 * weight)}" for weight in weights)
    asked = {"strategy": "nested", "evaluations": NESTED_MERGES, "remeasure": 5}
    return runs.search(models, f"nested-{name}", select={"prefer": prefer}, **asked)


def _chosen(search: Searched) -> FloatArray:
    return search.front.utilities([search.front.chosen], "measured")[0]


def _single_merges(compared: Compared) -> dict[str, FloatArray]:
    return {m: compared.baselines[m] for m in _BASELINES if m in compared.baselines}


def _measurements(search: Searched) -> int:
    """Count measurements of a task at a merge, those of the front among them."""
    return sum(
        e.role in {"anchor", "design", "refinement", "front"} for e in search.log
    )


def _published(method: Cell) -> Cell:
    name = "MAP, plain" if method == "MAP, algorithm 1" else str(method)
    return Spread(*NESTED_SUMS[name]) if name in NESTED_SUMS else None


def _headline(
    rows: Sequence[Sequence[Cell]], measured: Sequence[int], compared: Compared
) -> str:
    means = {row[0]: row[1].mean for row in rows if isinstance(row[1], Spread)}
    plain = len(compared.own) * len(compared.metrics)
    return (
        f"Nested {means['MAP, nested']:.3f}, default search "
        f"{means['MAP, default']:.3f}, best of {len(_BASELINES)} baselines "
        f"{max(means[m] for m in _BASELINES if m in means):.3f}, with "
        f"{round(float(np.mean(measured)))} and {plain} measurements of a task (paper: "
        f"{NESTED_SUMS['MAP, nested'][0]} and {NESTED_SUMS['MAP, plain'][0]} %, TIES "
        f"{NESTED_SUMS['TIES'][0]} %, {NESTED_MEASUREMENTS} and {PLAIN_MEASUREMENTS})."
    )


def _costs(measured: Sequence[int], compared: Compared, literal: Searched) -> Table:
    tasks = len(compared.metrics)
    return Table(
        name="costs",
        title="Measurements (of a task at a merge)",
        caption="Nested: for one preference, points of its last front among them.",
        columns=[*map(Column, ("MAP", "measurements", "paper"))],
        rows=[
            ["nested", round(float(np.mean(measured))), NESTED_MEASUREMENTS],
            ["default", len(compared.own) * tasks, None],
            ["algorithm 1", len(literal.own) * tasks, PLAIN_MEASUREMENTS],
        ],
    )


def _pair_fronts(search: Searched) -> list[Front]:
    folder, found = RunFolder(search.path), []
    while (path := folder.pair(len(found) + 1).front).exists():
        found.append(read_record(path, Front, "front of a pair"))
    return found


def _draw(axes: Axes, front: Front, runs: Runs) -> None:
    """Draw a pair: the mean gain over the tasks of one side against the other's."""
    sides = _sides(front, runs)
    base = front.utilities([a for a in front.anchors if a.label == "base"], "measured")
    best = np.array(
        [_best_single(runs, task) * front.metrics[task].sign for task in front.tasks]
    )

    def means(Y: FloatArray) -> FloatArray:
        shares = (Y - base) / (best - base)
        return np.column_stack([shares[:, side].mean(axis=1) for side in sides])

    points = means(front.utilities(front.points, "predicted"))
    axes.plot(*points.T, ".", color=PREDICTED, label="predicted")
    tasks = list(front.tasks)
    seen = [m for m in front.points if m.is_measured(*tasks)]
    if seen:
        Y = means(front.utilities(seen, "measured"))
        axes.scatter(*Y.T, s=24, color=MEASURED, label="measured", zorder=3)
    ends = [a for a in front.anchors if a.is_measured(*tasks)]
    axes.scatter(
        *means(front.utilities(ends, "measured")).T, marker="^", s=24, color=ANCHOR
    )
    chosen = means(front.utilities([front.chosen], "predicted"))
    axes.scatter(*chosen.T, marker="*", s=140, color=CHOSEN, label="chosen", zorder=4)
    for axis, side in zip("xy", sides, strict=True):
        names = "_".join(_owner(runs, tasks[i]) for i in side)
        getattr(axes, f"set_{axis}label")(names, fontsize=8, parse_math=False)


def _sides(front: Front, runs: Runs) -> list[list[int]]:
    """Tell which tasks belong to which of the two groups that were merged."""
    order: Any = front.order
    groups = [set(members(part)) for part in order]
    names = {_owner(runs, task): i for i, task in enumerate(front.tasks)}
    return [[names[m] for m in names if m in group] for group in groups]


def _owner(runs: Runs, task: str) -> str:
    return runs.family.task(task).model


def _best_single(runs: Runs, task: str) -> float:
    """Read what the task's own model measured, from the search of all models."""
    front = runs.plain(_models(runs)).front
    model = _owner(runs, task)
    values: Mapping[str, float | None] = {
        str(a.label): a.measured[task].value for a in front.anchors
    }
    return float(values[model] or 0.0)
