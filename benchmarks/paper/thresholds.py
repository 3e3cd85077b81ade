"""Figure 2: the best of one task while all others keep a limit."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mergekit_map import MapError, select_point
from mergekit_map.compare.contest import DIRECT as RANDOM
from mergekit_map.compare.tables import Cell, Column, Table
from mergekit_map.results.log import MergeKey, merge_key
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.workflows.select import Selection
from paper.drawing import DIRECT, MEASURED, PREDICTED, legend_above, new_figure
from paper.kept import Result
from paper.published import LIMITS
from paper.runs import Runs
from paper.searched import Compared, Searched
from paper.win_rates import known

# What is predicted to keep a limit by nothing, misses it as often as not.
_SPARE = 0.02
_LOWEST = -1.0  # that is drawn

_COLUMNS = [
    Column("limit", 0, percent=True),
    *map(Column, ("by", "merges", "keep it on all tasks", "tasks with a best")),
    Column("mean best", 1, percent=True),
    Column("largest kept on all", 1, percent=True),
]
_CAPTION = (
    "Keeps: {unit}. *MAP* is a default search, the points of its front that were "
    "measured, and for each limit the merges that `select --require` chose on the "
    "surrogates, one to keep it on all tasks and one for each task, with {spare} "
    "points to spare, and `merge` measured: {ours} merges in all. *Direct search* is "
    "as many random merges{short}, and *all* its {all}."
)


def figure2(runs: Runs) -> Result:
    """Count merges that keep a limit on all tasks, and draw the best of each task."""
    models = runs.models[: max(runs.sizes)]
    compared = runs.compare(runs.plain(models), runs.direct(len(models)))
    kept = _kept(runs, compared)
    figure, panels = new_figure(1, len(LIMITS), size=5)
    ways = list(zip(kept, (MEASURED, PREDICTED, DIRECT), strict=False))
    tasks = list(compared.metrics)
    for axes, limit in zip(panels, LIMITS, strict=True):
        for shift, (way, color) in enumerate(ways):
            best = [_best(kept[way], i, limit) for i in range(len(tasks))]
            places = np.arange(len(tasks)) + 0.27 * (shift - 1)
            axes.bar(places, np.nan_to_num(best), 0.25, color=color, label=way)
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, _LOWEST), max(high, 1.0))
        axes.axhline(limit, color="black", linestyle="--", linewidth=0.8)
        axes.set_xticks(
            range(len(tasks)), tasks, rotation=40, ha="right", parse_math=False
        )
        axes.set_title(f"all other tasks keep {100 * limit:g} %")
        axes.set_ylabel("share kept of the single model, at best")
    legend_above(figure, panels[0])
    rows = [_row(way, kept[way], limit) for limit in LIMITS for way, _ in ways]
    return Result(
        title="Figure 2: the best of a task while all others keep a limit",
        headline=_headline(rows, len(ways), shares=_are_shares(compared)),
        figure=figure,
        caption="No bar: no merge keeps the limit on all other tasks.",
        tables=[
            Table(
                name="limits",
                title=f"Merges of {len(models)} models that keep a limit",
                caption=_caption(compared, kept),
                columns=_COLUMNS,
                rows=rows,
            )
        ],
    )


def _kept(runs: Runs, compared: Compared) -> dict[str, FloatArray]:
    """Say of every merge what share it keeps of each single model; (k, m) by way."""
    chosen = _chosen(runs, compared)
    merges = {merge_key(m): m for m in (*compared.own_merges, *compared.shown)}
    further = [row for key, row in chosen.items() if key not in merges]
    ours = known(np.vstack([compared.utilities(list(merges.values())), *further]))
    direct = known(compared.contest.rivals[RANDOM].Y)
    zero, one = _ends(compared)
    found = {"MAP": ours, "direct search": direct[: len(ours)]}
    if len(direct) > len(ours):
        found["direct, all"] = direct
    return {way: (Y - zero) / (one - zero) for way, Y in found.items()}


def _ends(compared: Compared) -> tuple[FloatArray, FloatArray]:
    """Give what stands for 0 and for 1: nothing, or the base; and the best single."""
    front = compared.front
    base = [a for a in front.anchors if a.label == "base"]
    singles = [a for a in front.anchors if a.label not in {"base", "soup"}]
    zero = front.utilities(base, "measured")[0]
    if _are_shares(compared):
        zero = np.zeros_like(zero)
    return zero, front.utilities(singles, "measured").max(axis=0)


def _are_shares(compared: Compared) -> bool:
    return compared.report["unit"] == "percent"


def _chosen(runs: Runs, compared: Compared) -> Mapping[MergeKey, FloatArray]:
    """Choose merges for each limit, in a copy; (m,) each, as measured.

    One keeps it on all tasks, and one for each task keeps it on all others.
    """
    copy = _copied(compared.path)
    rows = {}
    for limit in LIMITS:
        asked = _limits(compared, limit + _SPARE)
        for task in (None, *compared.metrics):
            require = {name: least for name, least in asked.items() if name != task}
            prefer = {task: 1.0} if task else None
            try:
                selection = select_point(copy, prefer=prefer, require=require)
            except MapError:  # no merge is predicted to keep them all
                continue
            key = merge_key(selection.point.coefficients)
            rows[key] = _measured(runs, copy, selection)
    return rows


def _copied(run: Path) -> Path:
    """Copy a run folder, whose own front is to stay what the search found."""
    copy = run.with_name(f"{run.name}-limits")
    if not copy.exists():
        unfinished = run.with_name(f"{copy.name}-unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(run, unfinished)
        unfinished.rename(copy)
    return copy


def _limits(compared: Compared, limit: float) -> dict[str, float | str]:
    if not _are_shares(compared):
        return dict.fromkeys(compared.metrics, f"{100 * limit:g}%")
    _, one = _ends(compared)
    return dict(zip(compared.metrics, (limit * one).tolist(), strict=True))


def _measured(runs: Runs, copy: Path, selection: Selection) -> FloatArray:
    """Measure a chosen merge as it is written, unless that was done."""
    merge = selection.point.coefficients
    found = Searched(copy, runs.spent).utilities([merge])[0]
    if np.isnan(found).any():
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "merged"
            runs.command("merge", copy, out, "--index", selection.index)
        found = Searched(copy, runs.spent).utilities([merge])[0]
    return found


def _best(kept: FloatArray, task: int, limit: float) -> float:
    """Give the best of a task among merges that keep a limit on all others."""
    others = np.delete(kept, task, axis=1)
    within = kept[(others >= limit).all(axis=1), task]
    return float(within.max()) if len(within) else math.nan


def _row(way: str, kept: FloatArray, limit: float) -> list[Cell]:
    best = [_best(kept, task, limit) for task in range(kept.shape[1])]
    there = [value for value in best if not math.isnan(value)]
    return [
        limit,
        way,
        len(kept),
        int((kept >= limit).all(axis=1).sum()),
        f"{len(there)} of {len(best)}",
        float(np.mean(there)) if there else None,
        float(kept.min(axis=1).max()),
    ]


def _headline(rows: Sequence[Sequence[Cell]], ways: int, *, shares: bool) -> str:
    parts = [(LIMITS[i], *rows[ways * i :][:2]) for i in range(len(LIMITS))]
    said = "; ".join(
        f"{100 * limit:g} %: {ours[3]} of {ours[2]} merges of MAP and {direct[3]} of "
        f"{direct[2]} of direct search"
        for limit, ours, direct in parts
    )
    _, ours, direct = parts[0]
    most, theirs = (f"{100 * float(str(row[-1])):.0f} %" for row in (ours, direct))
    of = "" if shares else " of the gain"
    return (
        f"One merge of MAP keeps {most}{of} on all tasks, one of direct search "
        f"{theirs}. "
        f"Keep the limit on all, {said} (paper: at 65 % none of direct search)."
    )


def _caption(compared: Compared, kept: Mapping[str, FloatArray]) -> str:
    unit = (
        "the share of the score of the task's best single model"
        if _are_shares(compared)
        else "the share of what the task's best single model gains over the base"
    )
    ours, direct = len(kept["MAP"]), len(kept["direct search"])
    short = "" if direct >= ours else f" as its budget allows, {direct}"
    every = len(kept["direct, all"]) if "direct, all" in kept else direct
    return _CAPTION.format(
        unit=unit, ours=ours, short=short, all=every, spare=round(100 * _SPARE)
    )
